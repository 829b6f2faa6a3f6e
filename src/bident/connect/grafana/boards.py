"""The two dashboards: what each engine's figures mean side by side."""

from __future__ import annotations

from bident.connect.grafana.panels import Dashboard, Line, Panel, Row
from bident.connect.prometheus.missing import TENSOR_JOB, TEXT_JOB

_PICKED = 'instance=~"$instance",model=~"$model"'


def _nv(name: str, more: str = "") -> str:
    return f'nv_{name}{{job="{TENSOR_JOB}",{_PICKED}{more}}}'


def _text(name: str, more: str = "") -> str:
    return f'bident_text_{name}{{job="{TEXT_JOB}",{_PICKED}{more}}}'


def _rate(series: str) -> str:
    return f"sum by (model) (rate({series}[$__rate_interval]))"


def _mean(of: str, by: str, scale: str = "") -> str:
    """``of`` for each ``by``, where there was any."""
    return f"{_rate(of)}{scale} / ({_rate(by)} > 0)"


def _share_of_time(name: str, legend: str) -> Line:
    return Line(
        f"sum(rate({_nv(f'inference_{name}_duration_us')}[$__rate_interval]))"
        f" / (sum(rate({_nv('inference_request_duration_us')}[$__rate_interval])) > 0)",
        legend,
    )


def _slowest(name: str) -> Line:
    return Line(f"max by (model, quantile) ({_nv(f'inference_{name}_summary_us')}) / 1e6", "{{model}} {{quantile}}")


def _buckets(series: str, quantile: float) -> str:
    return f"histogram_quantile({quantile}, sum by (model, le) (rate({series}[$__rate_interval])))"


_SUCCESS = _nv("inference_request_success")
_MACHINE = f'job="{TENSOR_JOB}",instance=~"$instance"'

TENSOR = Dashboard(
    uid="bident-tensor",
    title="Bident: tensor engine",
    about="Models served as Triton serves them: requests, where their time goes, batches, the machine.",
    job=TENSOR_JOB,
    known_by="nv_inference_request_success",
    rows=(
        Row(
            "Now",
            (
                Panel("Servers", [Line(f"sum(up{{{_MACHINE}}})", "")], is_number=True),
                Panel("Models", [Line(f"count(sum by (model) ({_SUCCESS}))", "")], is_number=True),
                Panel(
                    "Requests a second", [Line(f"sum(rate({_SUCCESS}[$__rate_interval]))", "")], "reqps", is_number=True
                ),
                Panel("Waiting", [Line(f"sum({_nv('inference_pending_request_count')})", "")], is_number=True),
            ),
        ),
        Row(
            "Requests",
            (
                Panel("Answered", [Line(_rate(_SUCCESS))], "reqps"),
                Panel(
                    "Not answered",
                    [
                        Line(
                            f"sum by (model, reason) (rate({_nv('inference_request_failure')}[$__rate_interval]))",
                            "{{model}} {{reason}}",
                        )
                    ],
                    "reqps",
                    "REJECTED: no room or too late; CANCELED: the client left; BACKEND: the model failed.",
                ),
                Panel("Waiting for an instance", [Line(f"sum by (model) ({_nv('inference_pending_request_count')})")]),
            ),
        ),
        Row(
            "Time",
            (
                Panel(
                    "Mean time of a request",
                    [Line(_mean(_nv("inference_request_duration_us"), _SUCCESS, " / 1e6"))],
                    "s",
                    "From receiving a request to its answer.",
                ),
                Panel(
                    "Mean time in the queue",
                    [Line(_mean(_nv("inference_queue_duration_us"), _SUCCESS, " / 1e6"))],
                    "s",
                ),
                Panel(
                    "Where the time goes",
                    [
                        _share_of_time("queue", "waiting"),
                        _share_of_time("compute_input", "inputs"),
                        _share_of_time("compute_infer", "model"),
                        _share_of_time("compute_output", "outputs"),
                    ],
                    "percentunit",
                ),
            ),
        ),
        Row(
            "Batches",
            (
                Panel("Rows a second", [Line(_rate(_nv("inference_count")))], "ops"),
                Panel(
                    "Mean batch",
                    [Line(_mean(_nv("inference_count"), _nv("inference_exec_count")))],
                    about="Rows that one run of the model has computed.",
                ),
                Panel("Last load", [Line(f"max by (model) ({_nv('model_load_duration_secs')})")], "s"),
            ),
        ),
        Row(
            "The slowest (with --metrics-config summary_latencies=true)",
            (
                Panel("Request", [_slowest("request")], "s", "Quantiles of the last minute."),
                Panel("Queue", [_slowest("queue")], "s", "Quantiles of the last minute."),
                Panel("Model", [_slowest("compute_infer")], "s", "Quantiles of the last minute."),
            ),
        ),
        Row(
            "Response cache (with --cache-config, for models that use it)",
            (
                Panel(
                    "Answered from the cache",
                    [
                        Line(
                            f"{_rate(_nv('cache_num_hits_per_model'))} / ({_rate(_nv('cache_num_hits_per_model'))}"
                            f" + {_rate(_nv('cache_num_misses_per_model'))} > 0)"
                        )
                    ],
                    "percentunit",
                ),
                Panel("In use", [Line(f"nv_cache_util{{{_MACHINE}}}", "{{instance}}")], "percentunit"),
                Panel("Answers kept", [Line(f"nv_cache_num_entries{{{_MACHINE}}}", "{{instance}}")]),
            ),
        ),
        Row(
            "Machine",
            (
                Panel("Processor", [Line(f"nv_cpu_utilization{{{_MACHINE}}}", "{{instance}}")], "percentunit"),
                Panel(
                    "Memory",
                    [
                        Line(f"nv_cpu_memory_used_bytes{{{_MACHINE}}}", "{{instance}} used"),
                        Line(f"nv_cpu_memory_total_bytes{{{_MACHINE}}}", "{{instance}} there"),
                    ],
                    "bytes",
                ),
            ),
        ),
    ),
)

_FIRST = _text("first_token_seconds_bucket")
_SERVER = f'job="{TEXT_JOB}",instance=~"$instance"'

TEXT = Dashboard(
    uid="bident-text",
    title="Bident: text engine",
    about="Chats, completions and embeddings: requests, tokens, how soon answers begin, models in memory.",
    job=TEXT_JOB,
    known_by="bident_text_requests_under_way",
    rows=(
        Row(
            "Now",
            (
                Panel("Servers", [Line(f"sum(up{{{_SERVER}}})", "")], is_number=True),
                Panel("Models in memory", [Line(f"sum(bident_text_models_loaded{{{_SERVER}}})", "")], is_number=True),
                Panel("Being answered", [Line(f"sum({_text('requests_under_way')})", "")], is_number=True),
                Panel("Waiting", [Line(f"sum({_text('requests_waiting')})", "")], is_number=True),
                Panel(
                    "Tokens a second",
                    [Line(f"sum(rate({_text('answer_tokens_total')}[$__rate_interval]))", "")],
                    is_number=True,
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Panel("Ended", [Line(_rate(_text("requests_total", ',outcome="success"')))], "reqps"),
                Panel(
                    "By outcome",
                    [
                        Line(
                            f"sum by (kind, outcome) (rate({_text('requests_total')}[$__rate_interval]))",
                            "{{kind}} {{outcome}}",
                        )
                    ],
                    "reqps",
                    "refused: a wrong request; unavailable: no room; failed: the model; abandoned: the client left.",
                ),
                Panel("In line", [Line(f"sum by (model) ({_text('requests_waiting')})")]),
            ),
        ),
        Row(
            "How soon",
            (
                Panel(
                    "First token",
                    [
                        Line(_buckets(_FIRST, 0.5), "{{model}} half within"),
                        Line(_buckets(_FIRST, 0.95), "{{model}} 95% within"),
                    ],
                    "s",
                    "From receiving a request, with the wait for a slot and for the model to load.",
                ),
                Panel(
                    "Whole answer",
                    [
                        Line(_buckets(_text("request_seconds_bucket"), 0.5), "{{model}} half within"),
                        Line(_buckets(_text("request_seconds_bucket"), 0.95), "{{model}} 95% within"),
                    ],
                    "s",
                ),
                Panel(
                    "Seconds spent, a second",
                    [
                        Line(f"sum(rate({_text('wait_seconds_total')}[$__rate_interval]))", "waiting and loading"),
                        Line(f"sum(rate({_text('prompt_seconds_total')}[$__rate_interval]))", "reading prompts"),
                        Line(f"sum(rate({_text('answer_seconds_total')}[$__rate_interval]))", "writing answers"),
                    ],
                    "s",
                ),
            ),
        ),
        Row(
            "Tokens",
            (
                Panel(
                    "In and out, a second",
                    [
                        Line(_rate(_text("prompt_tokens_total")), "{{model}} in"),
                        Line(_rate(_text("answer_tokens_total")), "{{model}} out"),
                    ],
                ),
                Panel(
                    "Speed of one answer",
                    [Line(_mean(_text("answer_tokens_total"), _text("answer_seconds_total")))],
                    about="Tokens a second while it is written; several at once are slower each, and faster together.",
                ),
                Panel(
                    "Prompts known from before",
                    [Line(_mean(_text("cached_tokens_total"), _text("prompt_tokens_total")))],
                    "percentunit",
                ),
                Panel("Left out for want of room", [Line(_rate(_text("truncated_tokens_total")))]),
            ),
        ),
        Row(
            "Models in memory",
            (
                Panel(
                    "Memory",
                    [
                        Line(f"sum by (model) ({_text('model_memory_bytes')})"),
                        Line(f"process_resident_memory_bytes{{{_SERVER}}}", "the server itself"),
                    ],
                    "bytes",
                ),
                Panel(
                    "Slots in use",
                    [Line(f"sum by (model) ({_text('model_slots_used')}) / sum by (model) ({_text('model_slots')})")],
                    "percentunit",
                ),
                Panel(
                    "Loads and crashes",
                    [
                        Line(
                            f"sum by (model) (increase({_text('model_loads_total')}[$__rate_interval]))",
                            "{{model}} loaded",
                        ),
                        Line(
                            f"sum by (model) (increase({_text('model_crashes_total')}[$__rate_interval]))",
                            "{{model}} crashed",
                        ),
                    ],
                ),
            ),
        ),
    ),
)
BOARDS = (TENSOR, TEXT)
