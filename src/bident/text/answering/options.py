"""Sampling options: which there are, what holds where none is given, and how llama.cpp is told.

Names, types and defaults are Ollama's (docs/modelfile.md and ``api.DefaultOptions``). llama.cpp has defaults
of its own that differ (``top_p`` 0.95, ``min_p`` 0.05): every value is always sent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from bident.errors import ServeError, invalid_arg
from bident.text.answering.asked import Server
from bident.text.parameters import BOOLEANS, INTEGERS, KNOWN, LISTS, OBSOLETE
from bident.wire.text import TextRequest

_log = logging.getLogger(__name__)

_DEFAULTS: dict[str, Any] = {
    "num_keep": 4,
    "seed": -1,
    "num_predict": -1,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "temperature": 0.8,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "stop": [],
}
_SAME_NAME = (
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "temperature",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
)
_OPENAI = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop")
_BEYOND_OPENAI = ("top_k", "min_p", "typical_p", "repeat_penalty", "repeat_last_n")
"""Sent to other servers only if they were asked for: OpenAI itself refuses what it does not know."""
_LARGEST = (1 << 31) - 1
_RANDOM_SEED = (1 << 32) - 1
_LONGEST_IN_CONTEXTS = 10
_unknown: set[str] = set()


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` of a request without those that are null or unknown; the latter are logged once each.

    Raises INVALID_ARG ``option "x" must be of type integer``. A whole number may be written as 1.0.
    """
    known: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name in KNOWN:
            known[name] = _typed(name, value)
        elif name not in OBSOLETE and name not in _unknown and len(_unknown) < 1000:
            _unknown.add(name)
            _log.warning("option %s is not known and has no effect; there are %s", name[:80], ", ".join(sorted(KNOWN)))
    return known


def merged_options(parameters: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What holds for a request: its own ``options``, then the model's ``parameters``, then Ollama's defaults."""
    return {**_DEFAULTS, **parameters, **checked_options(options)}


def sampling(request: TextRequest, options: Mapping[str, Any], server: Server) -> dict[str, Any]:
    """The part of a payload that says how to choose tokens.

    A request with a seed of its own is not answered from the prompt cache: what is computed for a cached
    prompt and for a whole one differs in the last bits, and the same seed is to give the same answer.
    """
    if not server.is_native:
        return _openai_sampling(request)
    context = server.context_length
    payload = {name: options[name] for name in _SAME_NAME}
    payload["repeat_penalty"] = _repeat_penalty(options["repeat_penalty"])
    payload["seed"] = _seed(options["seed"])
    payload["n_predict"] = _token_limit(options["num_predict"], context)
    payload["n_keep"] = max(-1, min(options["num_keep"], context))
    # The child keeps as many tokens as this says: no more than there can be.
    payload["repeat_last_n"] = max(-1, min(options["repeat_last_n"], context))
    payload["cache_prompt"] = request.options.get("seed") in (None, -1)
    if request.logit_bias:
        payload["logit_bias"] = [[token, bias] for token, bias in request.logit_bias.items()]
    return payload


def _openai_sampling(request: TextRequest) -> dict[str, Any]:
    """Only what was asked for: the other server has defaults of its own."""
    options = checked_options(request.options)
    payload = {name: options[name] for name in (*_OPENAI, *_BEYOND_OPENAI) if name in options}
    if options.get("num_predict", -1) >= 0:
        payload["max_tokens"] = options["num_predict"]
    if request.logit_bias:
        payload["logit_bias"] = {str(token): bias for token, bias in request.logit_bias.items()}
    return payload


def _repeat_penalty(asked: float) -> float:
    """A factor, 1 for none. 0 is no penalty either: LiteLLM writes OpenAI's ``frequency_penalty`` in its place.

    Raises INVALID_ARG below 0.
    """
    if asked < 0:
        raise invalid_arg(f'option "repeat_penalty" must not be negative, and is {asked:g}; 1 is no penalty')
    return asked or 1.0


def _seed(seed: int) -> int:
    """Seeds are 32 bits wide in llama.cpp, 64 at OpenAI; -1 asks for another one every time."""
    if seed == -1:
        return seed
    folded = seed & _RANDOM_SEED
    return folded - 1 if folded == _RANDOM_SEED else folded


def _token_limit(asked: int, context: int) -> int:
    """Without a limit an answer could go on for ever: ten contexts, as in Ollama. -2 is what fits the context."""
    if asked == -2:
        return context
    most = _LONGEST_IN_CONTEXTS * context
    return most if asked < 0 else min(asked, most)


def _typed(name: str, value: Any) -> Any:
    if name in LISTS:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return [each for each in value if each]
        raise _wrong_type(name, "array of strings")
    if name in BOOLEANS:
        if isinstance(value, bool):
            return value
        raise _wrong_type(name, "boolean")
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if name in INTEGERS:
        if not is_number or value != int(value) or (name != "seed" and abs(value) > _LARGEST):
            raise _wrong_type(name, "integer")
        return int(value)
    if not is_number:
        raise _wrong_type(name, "float32")
    return float(value)


def _wrong_type(name: str, kind: str) -> ServeError:
    return invalid_arg(f'option "{name}" must be of type {kind}')
