"""Text models as ``bident ls``, ``ps`` and ``show`` show them: what Ollama's API says of them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from bident.cli import screen, standing
from bident.cli.both import short

if TYPE_CHECKING:
    from bident.client import TextClient

_UNITS = ("B", "kB", "MB", "GB", "TB")
_FOREVER_YEARS = 100
_ABOUT = (
    ("architecture", "general.architecture"),
    ("context length", ".context_length"),
    ("embedding length", ".embedding_length"),
)
"""What is shown of a model's own facts: what to call it, and how its key ends."""


def show_list(models: list[dict[str, Any]]) -> None:
    """The models that there are."""
    rows = screen.table("text model", ">size", "parameters", "quantization", "can", "modified", "remarks")
    for model in models:
        details = model.get("details") or {}
        rows.add_row(
            screen.text(short(model["name"])),
            size(model.get("size", 0)) if not model.get("remote_host") else "",
            details.get("parameter_size", ""),
            details.get("quantization_level", ""),
            ", ".join(model.get("capabilities") or ()),
            _ago(model.get("modified_at", "")),
            screen.text(standing.gist(model.get("fault", "")) or _elsewhere(model)),
        )
    screen.show(rows)


def show_running(models: list[dict[str, Any]]) -> None:
    """The models that are loaded."""
    rows = screen.table("text model", ">size", ">context", "until")
    for model in models:
        context = model.get("context_length")
        rows.add_row(
            screen.text(short(model["name"])),
            size(model.get("size", 0)),
            f"{context}" if context else "",
            _until(model.get("expires_at", "")),
        )
    screen.show(rows)


def show_card(client: TextClient, model: str, *, modelfile: bool, as_json: bool) -> None:
    """All about ``model``, or its Modelfile alone. Raises NOT_FOUND."""
    card = client.show(model)
    if as_json:
        screen.show_json(card)
        return
    if modelfile:
        print(card.get("modelfile", ""))
        return
    capabilities = card.get("capabilities") or []
    screen.show(f"[bold]{screen.text(model)}[/bold]  text model, can do: {', '.join(capabilities) or 'nothing known'}")
    screen.show(_facts(card))
    for title in ("parameters", "system"):
        if card.get(title):
            screen.show(f"[bold]{title}[/bold]")
            print(_indented(card[title]))
    if card.get("license"):
        print(f"License: {card['license'].strip().splitlines()[0]}")
    print(f"Try:\n{example(client.url, model, capabilities)}")


def _facts(card: dict[str, Any]) -> Any:
    details, info = card.get("details") or {}, card.get("model_info") or {}
    from rich.table import Table

    rows = Table.grid(padding=(0, 2))
    for title, ending in _ABOUT:
        value = next((str(value) for key, value in info.items() if key.endswith(ending)), "")
        if value:
            rows.add_row(title, screen.text(value))
    for title in ("parameter_size", "quantization_level"):
        if details.get(title):
            rows.add_row(title.replace("_", " "), screen.text(details[title]))
    return rows


def example(url: str, model: str, capabilities: list[str]) -> str:
    """Commands that ask ``model`` something."""
    if "completion" not in capabilities and "embedding" in capabilities:
        return f"  curl {url}/api/embed -d '{json.dumps({'model': model, 'input': 'Why is the sky blue?'})}'"
    return f"  bident run {model}\n  curl {url}/api/generate -d '{json.dumps({'model': model, 'prompt': 'Why?'})}'"


def size(count: int) -> str:
    """So many bytes, in the units of storage, as Ollama counts them."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if amount >= 10 or not unit else f"{amount:.1f} {_UNITS[unit]}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _elsewhere(model: dict[str, Any]) -> str:
    return f"answered by {model['remote_host']}" if model.get("remote_host") else ""


def _ago(moment: str) -> str:
    parsed = _parsed(moment)
    # Go's zero, the year 1, is an unknown time.
    return f"{standing.lasting((_now() - parsed).total_seconds())} ago" if parsed and parsed.year > 1 else ""


def _until(moment: str) -> str:
    parsed = _parsed(moment)
    if parsed is None:
        return ""
    if parsed.year - _now().year > _FOREVER_YEARS:
        return "for ever"
    return f"in {standing.lasting((parsed - _now()).total_seconds())}"


def _parsed(moment: str) -> datetime | None:
    """A moment as Go writes it, in nanoseconds; None for what is none."""
    head, point, rest = moment.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = (rest[len(digits) :] if point else "").replace("Z", "+00:00")
    text = f"{head}.{digits[:6]:0<6}{zone}" if point else moment.replace("Z", "+00:00")
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def _now() -> datetime:
    return datetime.now(timezone.utc)
