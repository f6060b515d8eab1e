"""`riglm init`: the servers of the clients on this machine go behind riglm."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.cli.output import JsonOption, print_json, print_table, printable
from riglm.domain.errors import RiglmError, UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Collection

    from riglm.cli.setup_access import SetupServices
    from riglm.domain.client_setup import FileChange, InstallPlan


NOT_CONFIRMED: Final = 3
"""The exit code when changes were shown but not confirmed."""

_CONTEXT: Final = 2
_MAX_SHOWN_BYTES: Final = 4 * 1024 * 1024
"""Finding the secrets in a larger file takes too long."""
_MAX_LINE_LENGTH: Final = 2_000

ClientOption = Annotated[
    list[str] | None, typer.Option("--client", metavar="NAME", help="Only this client; may be given several times.")
]
ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="Only what is for work in this directory.", file_okay=False),
]
DiffOption = Annotated[bool, typer.Option("--diff", help="Show the changed lines of each file.")]
SetupDryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show, and change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def known_clients(names: Sequence[str] | None) -> tuple[str, ...]:
    """The clients that were named, once riglm knows them all."""
    from riglm.adapters.clients.entries import FORMATS

    for name in names or ():
        if name not in FORMATS:
            raise UnusableInputError(f"riglm knows no client {name!r} — fix: one of {', '.join(FORMATS)}")
    return tuple(names or ())


def require_directory(project: Path | None) -> None:
    """Raise UnusableInputError where a directory was named that is not there."""
    if project is not None and not project.is_dir():
        raise UnusableInputError(f"--project {project}: there is no such directory — fix: name one that is there")


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


def init(
    client: ClientOption = None,
    project: ProjectOption = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="SERVER", help="Move this server even if it requires a sign-in."),
    ] = None,
    diff: DiffOption = False,
    dry_run: SetupDryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move the servers of your clients behind riglm.

    riglm starts in shadow mode: all tools stay visible.

    Shows what would change and asks. `riglm undo` takes it back. Exit code 3: shown, but not confirmed.
    """
    from riglm.cli.setup_access import installing

    parts = installing(anyway=include or (), project=project)
    clients, directory = known_clients(client), project and project.resolve()
    plans = parts.planner.plans(clients, directory)
    if not (yes or dry_run or as_json) and sys.stdin.isatty() and _signed_in(plans):
        parts = installing(anyway=include or (), project=project)
        plans = parts.planner.plans(clients, directory)
    if not plans:
        require_directory(project)
    _require_servers(include or (), parts, plans)
    changing = [plan for plan in plans if plan.changes]
    done = _installed(parts, changing, directory) if yes and not dry_run else None  # before output can fail
    if not as_json:
        _show(plans, diff=diff)
        _tell_absent(clients, directory, plans)
        _hint(parts, client, project, plans)
        if not clients and project is None:
            _print_unedited()
    if done is None:
        if dry_run or not changing:
            _end(plans, done=False, as_json=as_json)
        if not confirmed(_question(changing), as_json=as_json):
            if as_json:
                print_json(_as_json(plans, done=False))
            raise typer.Exit(NOT_CONFIRMED)
        done = _installed(parts, changing, directory)
    if not as_json:
        _notify(*done)
    _end([*(plan for plan in plans if not plan.changes), *done[0]], done=bool(changing), as_json=as_json)


def _signed_in(plans: "Sequence[InstallPlan]") -> bool:
    """Sign in to the servers that move only then, if the user agrees; return True if there are new accounts."""
    from riglm.cli.accounts import find_browser, sign_in_to

    needed = {(name, each.url): each for plan in plans for name, each in plan.sign_ins.items()}
    if needed:
        typer.echo(f"sign-in required: {', '.join(name for name, _ in needed)}. Without one, a server stays.")
    done = []
    for (name, _), settings in needed.items():
        try:
            if typer.confirm(f"Sign in to {name} now?", default=True):
                done.append(sign_in_to(name, settings, find_browser()))
        except RiglmError as error:
            typer.echo(printable(str(error)), err=True)
    return bool(done)


def _require_servers(names: "Collection[str]", parts: "SetupServices", plans: "Sequence[InstallPlan]") -> None:
    """Raise UnusableInputError for a name that no server has, be it here or behind riglm already."""
    if any(plan.fault for plan in plans):  # it may be in a file that cannot be read
        return
    there = [
        *(move.name for plan in plans for move in plan.moves),
        *(stay.name for plan in plans for stay in plan.stays),
    ]
    behind = {name for each in parts.record.all() for name in each.servers}
    for name in names:
        if name not in there and name not in behind:
            known = ", ".join(map(shown_name, dict.fromkeys(there))) or "none that could be moved"
            raise UnusableInputError(f"--include {name}: no server is called so — fix: there are {known}")


def _installed(
    parts: "SetupServices", plans: "Sequence[InstallPlan]", directory: Path | None
) -> "tuple[tuple[InstallPlan, ...], tuple[Path, ...]]":
    """Return the plans as they were done, and the deleted files that an earlier riglm had left."""
    removed = parts.clearing.clear(directory)
    return parts.installer.install_each(plans), removed


def _tell_absent(clients: "Collection[str]", directory: Path | None, plans: "Sequence[InstallPlan]") -> None:
    found = {plan.place.client for plan in plans}
    where = f"for work in {directory}" if directory is not None else "on this machine"
    absent = [f"{name} has no" for name in clients if name not in found]
    if not plans and not clients:
        absent = ["no client has"]
    for whose in absent:
        typer.echo(f"{whose} servers {where} that riglm knows of and that are not behind it already")


def _notify(tried: "Sequence[InstallPlan]", removed: "Sequence[Path]") -> None:
    print_removed(removed)
    for plan in tried:
        if plan.fault:
            print_fault(f"not done for {plan.place.client}, {plan.place.file}", plan.fault)
    if clients := dict.fromkeys(plan.place.client for plan in tried if not plan.fault):
        typer.echo(
            f"done: start {', '.join(clients)} again. Nothing is hidden yet; after some days `riglm report` shows what "
            "would be. `riglm undo` takes it back."
        )


def _show(plans: "Sequence[InstallPlan]", *, diff: bool) -> None:
    lines = ChangedLines([rewriting for plan in plans for rewriting in plan.rewritings]) if diff else None
    rows = [
        (plan.place.client, _short(plan.place.file), len(plan.moves), len(plan.stays))
        for plan in plans
        if not plan.fault
    ]
    if rows:
        print_table("Changes", ["client", "file", "servers that move", "servers that stay"], rows)
    for plan in plans:
        whose = f" in {plan.place.project}" if plan.place.project else ""
        if plan.fault:
            print_fault(f"{plan.place.client}{whose}", plan.fault)
            continue
        typer.echo(f"{plan.place.client}{whose}: {plan.place.file}")
        if plan.moves:
            print_list("behind riglm", [", ".join(_moved(move.name, move.behind) for move in plan.moves)])
        print_list("stays", [f"{shown_name(stay.name)}: {stay.why}" for stay in plan.stays])
        print_list("note", plan.notes)
        if not plan.changes:
            typer.echo("  nothing to change")
        if lines is not None:
            lines.print(plan.rewritings)
    if lines is None and any(plan.changes for plan in plans):
        typer.echo("`riglm init --diff --dry-run` shows the changed lines of each file.")


def _short(file: Path) -> str:
    """Return a path with `~` for the home directory."""
    return f"~/{file.relative_to(Path.home())}" if file.is_relative_to(Path.home()) else str(file)


def _moved(name: str, behind: str) -> str:
    return name if name == behind else f"{shown_name(name)}, as {behind}"


def _hint(
    parts: "SetupServices", client: list[str] | None, project: Path | None, plans: "Sequence[InstallPlan]"
) -> None:
    if project is not None:
        return
    seen = {plan.place for plan in plans}
    here = [plan for plan in parts.planner.plans(client or (), Path.cwd()) if plan.moves and plan.place not in seen]
    if here:
        files = ", ".join(printable(plan.place.file.name) for plan in here)
        typer.echo(f"this directory has project servers ({files}): `riglm init --project .` moves those")


def _print_unedited() -> None:
    from riglm.cli.setup_access import unedited

    for title, file, (program, *words) in unedited():
        typer.echo(f"{title}: {_short(file)}: riglm does not edit this file — fix: in a server of type stdio, write")
        typer.echo(
            f"    cmd: {json.dumps(program)}\n    args: {json.dumps([*words, 'run', '--', 'COMMAND', 'ARGUMENT'])}"
        )


def _question(plans: "Sequence[InstallPlan]") -> str:
    servers = sum(len(plan.moves) for plan in plans)
    clients = len({plan.place.client for plan in plans})
    if not servers:
        return "Bring riglm's entry up to date?"
    return f"Move {servers} {_plural('server', servers)} of {clients} {_plural('client', clients)} behind riglm?"


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _end(plans: "Sequence[InstallPlan]", *, done: bool, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(plans, done=done))
    if done and any(plan.fault and plan.changes for plan in plans):
        raise typer.Exit(1)
    raise typer.Exit(2 if any(plan.fault for plan in plans) else 0)


def _as_json(plans: "Sequence[InstallPlan]", *, done: bool) -> dict[str, Any]:
    return {"done": done, "places": [_place_as_json(plan, done=done) for plan in plans]}


def _place_as_json(plan: "InstallPlan", *, done: bool) -> dict[str, Any]:
    return {
        "done": done and plan.changes and not plan.fault,
        "client": plan.place.client,
        "file": str(plan.place.file),
        "project": str(plan.place.project) if plan.place.project else None,
        "configuration": str(plan.configuration),
        "entry": plan.entry,
        "command": list(plan.command),
        "changes": plan.changes,
        "moves": [{"name": move.name, "behind": move.behind, "unused": list(move.unused)} for move in plan.moves],
        "stays": [{"name": stay.name, "why": stay.why} for stay in plan.stays],
        "sign_ins": list(plan.sign_ins),
        "notes": list(plan.notes),
        "fault": plan.fault or None,
    }
