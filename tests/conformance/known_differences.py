"""Where Bident is not as the judge on purpose. Each entry names its row of ``docs/differences.md``, which says why.

The judge is Triton 2.51; rows of the table *Newer than 2.51* are what 2.73 does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from judged_comparison import Mismatch

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"
SWITCHED = "`--triton-compat` keeps"
"""What a row says if --triton-compat takes the difference away."""


@dataclass(frozen=True)
class Difference:
    """``cases`` and ``what`` are patterns of a case's id and of how a mismatch is printed.

    ``row`` is how its row in ``docs/differences.md`` begins. ``switched``: not with --triton-compat.
    """

    row: str
    cases: str
    what: str
    switched: bool = False

    def matches(self, case: str, mismatch: Mismatch) -> bool:
        return bool(re.search(self.cases, case) and re.search(self.what, str(mismatch)))


def explained(case: str, mismatch: Mismatch, *, compatible: bool = False) -> bool:
    """Whether an entry says that and why ``case`` differs so."""
    return any(one.matches(case, mismatch) for one in DIFFERENCES if not (compatible and one.switched))


def rows() -> dict[str, str]:
    """The rows of the document: how each begins, and all of it."""
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


_ANSWER = r"(json|events|headers|answers|binary)"
_TO_ERROR = rf"status: (200|'OK') -> |^(step \d+\.)?({_ANSWER}.* -> 'absent'|answers: |json: |(json\.)?error: 'absent')"
_FROM_ERROR = (
    rf"status: .* -> (200|'OK')|error(_message)?: .* -> 'absent'|^(step \d+\.)?({_ANSWER}.*'absent' -> |answers: )"
)
_TEXT = r"error(_message)?: '|error(_message)?: \""
_OTHER_MISTAKE = rf"{_TEXT}|status: (400|500) -> (400|500)"

DIFFERENCES: tuple[Difference, ...] = (
    # Requests
    Difference(
        "A body that is not JSON, has no `inputs`, or whose `data`", "^http", "status: 500 -> 400", switched=True
    ),
    Difference("A generate body that is not JSON", "^http generate", "status: 500 -> 400", switched=True),
    Difference("FP16 and BF16 in JSON, both ways", "^http.*(FP16|BF16)", "."),
    Difference(
        "A number too large for its datatype",
        r"^http (U?INT|FP)\d+ of |256 for UINT8|data\.0 is large",
        rf"{_TO_ERROR}|{_TEXT}|Unable to parse",
        switched=True,
    ),
    Difference("A JSON number outside of 64 bits", r"^http U?INT\d+ of (minus|2\*\*63)", _TEXT, switched=True),
    Difference("A `classification` beyond 32 bits", "classification is large", "json"),
    Difference("BOOL bytes other than 0 and 1", "bool of 7", "."),
    Difference(
        "An empty body for `/infer`",
        "http empty body|http POST .*/infer",
        f"{_TO_ERROR}|{_TEXT}|headers",
        switched=True,
    ),
    Difference("NaN and infinity in a JSON answer", "bytes, NaN", "data.* -> None", switched=True),
    Difference("FP32 in JSON answers", "FP32, limits", r"e-45 -> -?1e-45", switched=True),
    Difference("HEAD on a GET route", "http HEAD", "status: 405|allow"),
    Difference(
        "A verb that a route does not have",
        "^http (POST|PUT|DELETE|PATCH|OPTIONS|GET|HEAD) ",
        "headers.allow: 'absent'",
    ),
    Difference("Content-Type of errors", "^http", "content-type: 'text/plain' -> 'application/json'"),
    Difference("`null` where a member may be absent", "is null$", _FROM_ERROR),
    Difference("A key twice in a body", "(key|inputs) twice", f"json.id|{_FROM_ERROR}"),
    Difference("Text in JSON that is not UTF-8", "not UTF-8", f"{_TO_ERROR}|^bytes|{_OTHER_MISTAKE}"),
    Difference("`NaN` in a JSON request", "body of NaN|head of NaN", _OTHER_MISTAKE),
    Difference("A body that is JSON and no object", "(body|head) of (an array|a number|a string|null|true)", _TEXT),
    Difference(
        "`Inference-Header-Content-Length` that is no number",
        "http length (text|empty|fraction|plus|hex)",
        f"{_TO_ERROR}|{_OTHER_MISTAKE}",
    ),
    Difference(
        "`Content-Encoding` and `Accept-Encoding`",
        "encoding|encoded ''",
        f"json: |content-type|content-encoding: 'absent'|accept-encoding|{_FROM_ERROR}",
    ),
    Difference(
        "A compressed body that is broken",
        "content-encoding.*(that is not|cut|raw deflate|nothing)",
        f"status: 500 -> 400|{_TEXT}",
    ),
    Difference("Percent-encoded model names", "%", "."),
    Difference(
        "Which of several mistakes is named",
        r"batches that differ|ensemble, a wrong|binary size (zero|one|less)|raw \d+ bytes|inputs(\.0)? is |of deep"
        r"|shape is array|huge shape|(no|odd) datatype|0 rows|length cut|trace of '?nobody"
        "|POST /v2/models/rows/(versions/1/)?infer"
        "|a model asks rows|number for a text",
        _OTHER_MISTAKE,
    ),
    # Python models
    Difference("An output of another shape than declared", "fault 8", "."),
    Difference(
        "An output that a request asks for and the model does not give",
        "^http.*not all that is declared",
        _TO_ERROR,
        switched=True,
    ),
    Difference("An output that a request asks for and the model does not give", "^grpc.*not all that is declared", "."),
    Difference(
        "Codes of errors from models that were asked", "a model asks", "status: (500 -> 400|'INTERNAL' -> 'INVALID_ARG)"
    ),
    Difference("An exception in `initialize`, or on import", "index|Index|load '?broken", "reason|error"),
    # Ensembles and generate
    Difference(
        "`sequence_id`, `sequence_start`, `sequence_end` in an ensemble's answer", ".", "sequence_(id|start|end)"
    ),
    Difference(
        "The order of outputs that a request names", "outputs, turned", r"\.name: 'OUTPUT|data|raw_output_contents"
    ),
    Difference("The order of an ensemble's outputs", "ensemble of", r"'(REST|SUM)' -> '(REST|SUM)'"),
    Difference("An ensemble that is asked for some of its outputs", "ensemble, classes", _FROM_ERROR),
    Difference(
        "`/generate` of a model that answers not exactly once",
        "generate of (three|no resp|an error last|a decoupled)",
        "status: 200 -> 500",
    ),
    Difference(
        "The first answer of `/generate` or `/generate_stream` is an error",
        "generate(_stream)? of (a fault|an error)",
        "status: 400 -> (404|500)",
    ),
    # Sequences
    Difference(
        "A sequence id that the model's CORRID tensor cannot carry",
        "sequence.*(text for a number|number for a text|named 101|named, two)",
        ".",
    ),
    Difference("A text as CORRID for a Python model", "sequence named", "."),
    # Trace and log settings
    Difference("Trace and log settings: an unknown name, `trace_mode`", "nothing|trace_mode", _TO_ERROR),
    Difference("Trace settings: an unknown level", "trace_level is .*X", _TO_ERROR),
    Difference("Trace settings: numbers with something behind them", "trace.* is '-1'", f"{_TO_ERROR}|4294967295"),
    Difference("Trace settings: numbers as JSON numbers", "trace.* is 5", f"{_FROM_ERROR}|trace_(rate|count)|log_freq"),
    Difference("Trace and log settings: a body that is no object", "(trace|logging).*body", _TO_ERROR),
    Difference("Log settings of which one cannot be", "logging.*(good and bad|of large)", f"{_TO_ERROR}|log_info"),
    # gRPC
    Difference(
        "A message that is not protobuf",
        "message, |broken message",
        "status: ('INTERNAL'|'OK') -> 'INVALID_ARGUMENT'|error: 'absent'",
    ),
    Difference("A version such as `1.0`", "version '(1.0| 1)'", _TO_ERROR + "|version"),
    Difference("More `raw_input_contents` than inputs", "grpc raw, two", _TO_ERROR),
    Difference("A negative `timeout`", "timeout, minus", _TO_ERROR),
    Difference("Integers in `contents` that do not fit", r"grpc \w+ out of range", _TO_ERROR),
    Difference(
        "`triton_grpc_error` and a request that is refused", "strict stream of (an unknown|a mistake)", _TO_ERROR
    ),
    # Server
    Difference("`/v2` version", "GET /v2|ServerMetadata", "version"),
    Difference("Load, unload and index bodies", "http (un)?load with|http index", f"{_TO_ERROR}|status: |{_TEXT}|json"),
    Difference(
        "A model name that no folder can have",
        r"(un)?load ('| |\.|%|a)|Load of nothing",
        f"{_TO_ERROR}|status: |{_TEXT}",
    ),
    Difference(
        "A region without a name, a CUDA region",
        "memory, register (?!no memory|with offset)|MemoryRegister",
        f"status|{_TEXT}",
    ),
    Difference("A region's `offset`", "memory, registered in part", "."),
    Difference("A second region of the same memory", "memory, registered twice", "."),
    Difference("Blanks around the value of a header", "header forwarded, that is empty", "."),
    # Newer than 2.51
    Difference("A shared memory key that does not exist or is reserved", "memory, register", f"status: |{_TEXT}"),
    Difference("A shared memory region of 0 bytes", "memory, registered of no size", _TEXT),
    Difference("An output that does not fit its shared memory", "http memory, output too small", "."),
    Difference("`nv_model_load_duration_secs`", "stats", "nv_model_load_duration_secs"),
    Difference("A model that is in no repository", ".", r"status: (404|'NOT_FOUND') -> (400|'INVALID_ARGUMENT')"),
    Difference("A model that has been unloaded", "load", "has no available versions"),
    Difference("An output named twice", "outputs, twice", _TO_ERROR),
    Difference(
        "A required input that is missing beside optional ones",
        "only an optional one|missing input|shape.0 is zero",
        f"status: |content-type|{_TEXT}|{_TO_ERROR}",
    ),
    Difference("`max_inflight_requests` of an ensemble", "onfig|load with", "max_inflight_requests"),
    Difference(
        "A failed request in a stream",
        "grpc stream",
        r"infer_response\.(model_name|model_version|parameters|id): 'absent'",
    ),
    Difference("`Invalid config override` and its like", "grpc load with", f"status|{_TEXT}"),
)
