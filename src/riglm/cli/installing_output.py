"""What `riglm init` and `riglm undo` have in common: options, and how they show changes to files."""

import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from riglm.cli.output import printable
from riglm.domain.errors import UnusableInput

if TYPE_CHECKING:
    from riglm.domain.installation import Rewriting

NOT_CONFIRMED: Final = 3
"""The exit code when changes were shown but not confirmed."""

_CONTEXT: Final = 2

ClientOption = Annotated[
    list[str] | None, typer.Option("--client", metavar="NAME", help="Only this client; may be given several times.")
]
ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="Only what is for work in this directory.", file_okay=False),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show, and change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def known_clients(names: Sequence[str] | None) -> tuple[str, ...]:
    """The clients that were named, once riglm knows them all."""
    from riglm.adapters.clients.places import CLIENTS

    for name in names or ():
        if name not in CLIENTS:
            raise UnusableInput(f"riglm knows no client {name!r} — fix: one of {', '.join(CLIENTS)}")
    return tuple(names or ())


def require_directory(project: Path | None) -> None:
    """Raise UnusableInput where a directory was named that is not there."""
    if project is not None and not project.is_dir():
        raise UnusableInput(f"--project {project}: there is no such directory — fix: name one that is there")


def print_removed(files: Iterable[Path]) -> None:
    """Which files went that a riglm had left when it was stopped."""
    for file in files:
        typer.echo(f"removed {printable(str(file))}, which a riglm that was stopped had left")


def confirmed(question: str, *, as_json: bool) -> bool:
    """Return True if the user at the terminal confirms."""
    if as_json or not sys.stdin.isatty():
        typer.echo("nothing was changed: there is no terminal to ask on — fix: add --yes", err=True)
        return False
    if typer.confirm(question):
        return True
    typer.echo("nothing was changed", err=True)
    return False


def print_fault(whose: str, fault: str) -> None:
    """Why nothing can be done for a client."""
    typer.echo(f"{whose}: {fault}", err=True)


def shown_name(server: str) -> str:
    """A server's name as people can see it, also where it is empty."""
    return server or '""'


def print_list(label: str, items: Iterable[str]) -> None:
    """One line for each, below what they are about."""
    for item in items:
        typer.echo(f"  {label}: {printable(item)}")


def print_rewritings(rewritings: "Iterable[Rewriting]", cover: Callable[[str], str]) -> None:
    """What changes in files, in colours on a terminal, secrets covered."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    for rewriting in rewritings:
        for line in _difference(rewriting, cover):
            console.print(Text(line, style=_style(line)))


def _difference(rewriting: "Rewriting", cover: Callable[[str], str]) -> list[str]:
    """The lines that change, with those around them; only these are looked through for secrets: files can be large."""
    before, after = (_text(content).splitlines() for content in (rewriting.before, rewriting.after))
    same, last = _same(before, after), _same(before[::-1], after[::-1])
    start = max(0, same - _CONTEXT)
    end = max(0, min(last, len(before) - same, len(after) - same) - _CONTEXT)
    name = printable(str(rewriting.file))
    old, new = "nothing" if rewriting.before is None else name, "nothing" if rewriting.after is None else name
    parts = before[start : len(before) - end], after[start : len(after) - end]
    lines = unified_diff(*parts, old, new, lineterm="", n=_CONTEXT)
    shown = ["    " + ("…" if line.startswith("@@") else line.replace("\t", "    ")) for line in lines]
    return [printable(line) for line in cover("\n".join(shown)).splitlines()]


def _same(some: Sequence[str], others: Sequence[str]) -> int:
    """With how many equal lines both begin."""
    pairs = zip(some, others, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(some), len(others)))


def _style(line: str) -> str:
    mark = line.strip()[:1]
    return {"+": "green", "-": "red", "…": "dim"}.get(mark if line[4:5] == mark else "", "")


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8-sig", "replace")
