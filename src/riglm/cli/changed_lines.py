"""Changed lines of clients' files, as `riglm init --diff` and `riglm undo --diff` print them: secrets are masked."""

from collections.abc import Callable, Iterable, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

import typer

from riglm.cli.output import printable

if TYPE_CHECKING:
    from riglm.domain.client_setup import FileChange

_CONTEXT: Final = 2
_MAX_SHOWN_BYTES: Final = 4 * 1024 * 1024
"""Finding the secrets in a larger file takes too long."""
_MAX_LINE_LENGTH: Final = 2_000


class ChangedLines:
    """Prints the changed lines of files, in colors on a terminal, secrets covered."""

    def __init__(self, rewritings: "Iterable[FileChange]") -> None:
        """`rewritings` are all changes that will be printed."""
        from rich.console import Console

        from riglm.cli.setup_access import cover

        self._console = Console(soft_wrap=True, highlight=False)
        self._cover = cover([each for each in rewritings if _size(each) <= _MAX_SHOWN_BYTES])

    def print(self, rewritings: "Iterable[FileChange]") -> None:
        """Print the lines of these changes; of a large file, only its size."""
        from rich.text import Text

        for rewriting in rewritings:
            if _size(rewriting) > _MAX_SHOWN_BYTES:
                size = f"{_size(rewriting) / 1_000_000:.0f} MB, too large to show its lines"
                typer.echo(f"    {printable(str(rewriting.file))}: {size}")
                continue
            for line in _difference(rewriting, self._cover):
                shown = (
                    line if len(line) <= _MAX_LINE_LENGTH else f"{line[:_MAX_LINE_LENGTH]}… ({len(line):,} characters)"
                )
                self._console.print(Text(shown, style=_style(line)))


def _size(rewriting: "FileChange") -> int:
    return max(len(rewriting.before or b""), len(rewriting.after or b""))


def _difference(rewriting: "FileChange", cover: Callable[[str], str]) -> list[str]:
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
