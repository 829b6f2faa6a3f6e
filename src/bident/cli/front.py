"""The page that ``bident`` and ``bident --help`` show: the two-minute path, then the commands by group."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from bident.cli import screen

_PATH = (
    ("bident zoo build iris_sklearn smollm2", "two sample models: one for tensors, one for text"),
    ("bident up", "both servers in the background, on ports 8000 and 11434"),
    ("bident run smollm2", "talk to the text model"),
    ("bident show iris_sklearn", "what the tensor model takes, and a request to try"),
    ("bident run iris_sklearn flowers.csv", "ask it with a file"),
    ("bident add my_model.onnx", "then serve your own; a text model comes by bident pull"),
    ("bident down", "stop"),
)
_ENDING = """\
'bident help COMMAND' explains a command, 'bident help serve' every flag of the servers;
'bident --install-completion' completes commands in this shell.
Servers elsewhere: bident --api-key KEY --ca FILE COMMAND --url https://HOST:PORT (text: --text-url), each also a
variable: BIDENT_API_KEY, BIDENT_CA, BIDENT_URL, BIDENT_TEXT_URL. Restricted APIs: bident --header 'NAME: VALUE'.
Exit codes: 0 done, 1 failed (one line says why), 2 wrong command line."""


class FrontPage(TyperGroup):
    """The root of the commands. Draws its own help: Typer's takes twice as long to import as to show."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        screen.show(f"{self.help}\n")
        screen.show("[bold]Two minutes[/bold]")
        screen.show(_listing([(command, remark) for command, remark in _PATH]))
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            title = getattr(command, "rich_help_panel", None)
            if command is not None and isinstance(title, str):
                groups.setdefault(title, []).append((name, command.get_short_help_str(200)))
        for title, commands in groups.items():
            screen.show(f"\n[bold]{title}[/bold]")
            screen.show(_listing(commands))
        screen.show(f"\n{_ENDING}")


def _listing(rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for name, remark in rows:
        grid.add_row(f"  [cyan]{name}[/cyan]", remark)
    return grid
