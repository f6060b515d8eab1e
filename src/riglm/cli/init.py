"""`riglm init`: the servers of the clients on this machine go behind riglm."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.cli.output import JsonOption, print_json, print_table, printable
from riglm.domain.errors import RiglmError, UnusableInputError
from riglm.domain.plurals import format_count

if TYPE_CHECKING:
    from riglm.application.setup.init import SetupContext
    from riglm.domain.client_setup import InstallPlan

NOT_CONFIRMED: Final = 3
"""The exit code when changes were shown but not confirmed."""

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
    from riglm.application.setup.init import SetupPlanner, install_each
    from riglm.cli.setup_access import setup_context

    context = setup_context(include=include or (), project=project)
    clients, directory = require_clients(client), project and project.resolve()
    plans = SetupPlanner(context).plans(clients, directory)
    if not (yes or dry_run or as_json) and sys.stdin.isatty() and _sign_in(plans):
        plans = SetupPlanner(context).plans(clients, directory)
    if not plans:
        require_directory(project)
    _require_servers(include or (), context, plans)
    changing = [plan for plan in plans if plan.changes]
    is_done = yes and not dry_run  # before output can fail
    tried = install_each(context, changing) if is_done else ()
    if not as_json:
        _print_plans(plans, diff=diff)
        _print_absent(clients, directory, plans)
        if project is None:
            _print_hints(context, clients, plans)
    if not is_done and changing and not dry_run:
        is_done = confirm(_question(changing), as_json=as_json)
        if not is_done:
            _print_json(plans, done=False, as_json=as_json)
            raise typer.Exit(NOT_CONFIRMED)
        tried = install_each(context, changing)
    if is_done and not as_json:
        for plan in tried:
            if plan.fault:
                print_fault(f"not done for {plan.place.client}, {plan.place.file}", plan.fault)
        if names := dict.fromkeys(plan.place.client for plan in tried if not plan.fault):
            typer.echo(
                f"done: start {', '.join(names)} again. Nothing is hidden yet; after some days `riglm report` shows "
                "what would be. `riglm undo` takes it back."
            )
    plans = (*(plan for plan in plans if not plan.changes), *tried) if is_done else plans
    _print_json(plans, done=is_done and bool(changing), as_json=as_json)
    if any(plan.fault for plan in tried):
        raise typer.Exit(1)
    raise typer.Exit(2 if any(plan.fault for plan in plans) else 0)


def require_clients(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the clients that were named; raise UnusableInputError for one that riglm does not know."""
    from riglm.domain.client_support import FORMATS

    for name in names or ():
        if name not in FORMATS:
            raise UnusableInputError(f"riglm knows no client {name!r} — fix: one of {', '.join(FORMATS)}")
    return tuple(names or ())


def require_directory(project: Path | None) -> None:
    """Raise UnusableInputError where a directory was named that is not there."""
    if project is not None and not project.is_dir():
        raise UnusableInputError(f"--project {project}: there is no such directory — fix: name one that is there")


def confirm(question: str, *, as_json: bool) -> bool:
    """Return True if the user at the terminal confirms."""
    if as_json or not sys.stdin.isatty():
        typer.echo("nothing was changed: there is no terminal to ask on — fix: add --yes", err=True)
        return False
    if typer.confirm(question):
        return True
    typer.echo("nothing was changed", err=True)
    return False


def print_fault(whose: str, fault: str) -> None:
    """Print why nothing can be done for a client."""
    typer.echo(f"{whose}: {fault}", err=True)


def print_list(label: str, items: Iterable[str]) -> None:
    """Print one line for each item, below what they are about."""
    for item in items:
        typer.echo(f"  {label}: {printable(item)}")


def shown_name(server: str) -> str:
    """Return a server's name so that an empty one is visible."""
    return server or '""'


def _sign_in(plans: "Sequence[InstallPlan]") -> bool:
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


def _require_servers(names: Sequence[str], context: "SetupContext", plans: "Sequence[InstallPlan]") -> None:
    """Raise UnusableInputError for a name that no server has, be it here or behind riglm already."""
    if any(plan.fault for plan in plans):  # it may be in a file that cannot be read
        return
    moves = [move.name for plan in plans for move in plan.moves]
    there = [*moves, *(stay.name for plan in plans for stay in plan.stays)]
    behind = {name for each in context.journal.all() for name in each.servers}
    for name in names:
        if name not in there and name not in behind:
            known = ", ".join(map(shown_name, dict.fromkeys(there))) or "none that could be moved"
            raise UnusableInputError(f"--include {name}: no server is called so — fix: there are {known}")


def _question(plans: "Sequence[InstallPlan]") -> str:
    servers = sum(len(plan.moves) for plan in plans)
    clients = format_count(len({plan.place.client for plan in plans}), "client")
    if not servers:
        return "Bring riglm's entry up to date?"
    return f"Move {format_count(servers, 'server')} of {clients} behind riglm?"


def _print_plans(plans: "Sequence[InstallPlan]", *, diff: bool) -> None:
    from riglm.cli.changed_lines import ChangedLines

    lines = ChangedLines([rewriting for plan in plans for rewriting in plan.rewritings]) if diff else None
    rows = [
        (plan.place.client, _short(plan.place.file), len(plan.moves), len(plan.stays))
        for plan in plans
        if not plan.fault
    ]
    if rows:
        print_table("Changes", ["client", "file", "servers that move", "servers that stay"], rows)
    for plan in plans:
        whose = f"{plan.place.client} in {plan.place.project}" if plan.place.project else plan.place.client
        if plan.fault:
            print_fault(whose, plan.fault)
            continue
        typer.echo(f"{whose}: {plan.place.file}")
        if plan.moves:
            moved = [each.name if each.name == each.behind else f"{shown_name(each.name)}, as {each.behind}"
                     for each in plan.moves]  # fmt: skip
            print_list("behind riglm", [", ".join(moved)])
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


def _print_absent(clients: Sequence[str], directory: Path | None, plans: "Sequence[InstallPlan]") -> None:
    found = {plan.place.client for plan in plans}
    where = f"for work in {directory}" if directory is not None else "on this machine"
    absent = [f"{name} has no" for name in clients if name not in found]
    if not plans and not clients:
        absent = ["no client has"]
    for whose in absent:
        typer.echo(f"{whose} servers {where} that riglm knows of and that are not behind it already")


def _print_hints(context: "SetupContext", clients: Sequence[str], plans: "Sequence[InstallPlan]") -> None:
    """Print that this directory has servers, too, and what to write where riglm does not edit the file."""
    from riglm.application.setup.init import SetupPlanner
    from riglm.cli.setup_access import unedited

    seen = {plan.place for plan in plans}
    here = SetupPlanner(context).plans(clients, Path.cwd())
    files = [printable(plan.place.file.name) for plan in here if plan.moves and plan.place not in seen]
    if files:
        typer.echo(f"this directory has project servers ({', '.join(files)}): `riglm init --project .` moves those")
    for title, file, (program, *words) in () if clients else unedited():
        arguments = [*words, "run", "--", "COMMAND", "ARGUMENT"]
        typer.echo(f"{title}: {_short(file)}: riglm does not edit this file — fix: in a server of type stdio, write")
        typer.echo(f"    cmd: {json.dumps(program)}\n    args: {json.dumps(arguments)}")


def _print_json(plans: "Sequence[InstallPlan]", *, done: bool, as_json: bool) -> None:
    if as_json:
        print_json({"done": done, "places": [_fields(plan, done=done) for plan in plans]})


def _fields(plan: "InstallPlan", *, done: bool) -> dict[str, Any]:
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
