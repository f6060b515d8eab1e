"""`riglm init` and `riglm undo`: move the servers of clients behind riglm, and back."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from riglm.application.setup.init import SetupPlanner, install
from riglm.application.setup.undo import Plan, SetupContext, carry_out, plan_undo
from riglm.application.setup.undo import undo as undo_plan
from riglm.cli.output import JsonOption, print_json, print_table, printable
from riglm.cli.setup_access import ChangedLines, riglm_entries, setup_context, unedited
from riglm.domain.client_setup import InstallPlan, UndoPlan
from riglm.domain.client_support import FORMATS
from riglm.domain.duration import format_count
from riglm.domain.errors import RiglmError, UnusableInputError

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
    context = setup_context(include=include or (), project=project)
    clients, directory = _require_clients(client), project and project.resolve()
    plans = SetupPlanner(context).plans(clients, directory)
    if not (yes or dry_run or as_json) and sys.stdin.isatty() and _sign_in(plans):
        plans = SetupPlanner(context).plans(clients, directory)
    _require_directory(project, plans)
    _require_servers(include or (), context, plans)
    changing = [plan for plan in plans if plan.changes]

    def show() -> None:
        places = [(plan.place, len(plan.moves), len(plan.stays)) for plan in plans if not plan.fault]
        if rows := [(place.client, _short(place.file), *counts) for place, *counts in places]:
            print_table("Changes", ["client", "file", "servers that move", "servers that stay"], rows)
        _print_plans("init", plans, _whose, _print_plan, diff=diff)
        _print_absent(clients, directory, plans)
        if project is None:
            _print_hints(context, clients, plans)

    tried = _carry_out(
        partial(install, context),
        plans,
        changing,
        show,
        lambda plans, done: {"done": done and bool(changing), "places": [_fields(plan, done=done) for plan in plans]},
        ". Nothing is hidden yet; after some days `riglm report` shows what would be. `riglm undo` takes it back.",
        question="" if dry_run else _question(changing),
        is_agreed=yes and not dry_run,
        as_json=as_json,
    )
    if any(plan.fault for plan in tried):
        raise typer.Exit(1)
    raise typer.Exit(2 if any(plan.fault for plan in plans) else 0)


def _carry_out(
    change: Callable[[Plan], None],
    plans: Sequence[Plan],
    changing: Sequence[Plan],
    show: Callable[[], None],
    report: Callable[[Sequence[Plan], bool], dict[str, Any]],
    hint: str,
    *,
    question: str,
    is_agreed: bool,
    as_json: bool,
) -> Sequence[Plan]:
    """Show the plans, make the changes if the user agrees, and report; return those that were tried.

    Without a `question` nothing is changed unless the user has agreed already.
    """
    is_done, is_refused = is_agreed, False
    tried = carry_out(change, changing) if is_done else ()  # before output can fail
    if not as_json:
        show()
    if not is_done and changing and question:
        if as_json or not sys.stdin.isatty():
            typer.echo("nothing was changed: there is no terminal to ask on — fix: add --yes", err=True)
        elif typer.confirm(question):
            is_done, tried = True, carry_out(change, changing)
        else:
            typer.echo("nothing was changed", err=True)
        is_refused = not is_done
    if as_json:
        print_json(report((*(plan for plan in plans if plan not in changing), *tried) if is_done else plans, is_done))
    elif is_done:
        for plan in tried:
            if plan.fault:
                typer.echo(f"not done for {plan.place.client}, {plan.place.file}: {plan.fault}", err=True)
        if names := dict.fromkeys(plan.place.client for plan in tried if not plan.fault):
            typer.echo(f"done: start {', '.join(names)} again{hint}")
    if is_refused:
        raise typer.Exit(NOT_CONFIRMED)
    return tried


def _require_clients(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the clients that were named; raise UnusableInputError for one that riglm does not know."""
    for name in names or ():
        if name not in FORMATS:
            raise UnusableInputError(f"riglm knows no client {name!r} — fix: one of {', '.join(FORMATS)}")
    return tuple(names or ())


def _require_directory(project: Path | None, plans: Sequence[Plan]) -> None:
    """Raise UnusableInputError where nothing was found, and a directory was named that is not there."""
    if not plans and project is not None and not project.is_dir():
        raise UnusableInputError(f"--project {project}: there is no such directory — fix: name one that is there")


def _print_list(label: str, items: Iterable[str]) -> None:
    """Print one line for each item, below what they are about."""
    for item in items:
        typer.echo(f"  {label}: {printable(item)}")


def _shown_name(server: str) -> str:
    """Return a server's name so that an empty one is visible."""
    return server or '""'


def _sign_in(plans: Sequence[InstallPlan]) -> bool:
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


def _require_servers(names: Sequence[str], context: SetupContext, plans: Sequence[InstallPlan]) -> None:
    """Raise UnusableInputError for a name that no server has, be it here or behind riglm already."""
    if any(plan.fault for plan in plans):  # it may be in a file that cannot be read
        return
    moves = [move.name for plan in plans for move in plan.moves]
    there = [*moves, *(name for plan in plans for name in plan.stays)]
    behind = {name for each in context.journal.all() for name in each.servers}
    for name in names:
        if name not in there and name not in behind:
            known = ", ".join(map(_shown_name, dict.fromkeys(there))) or "none that could be moved"
            raise UnusableInputError(f"--include {name}: no server is called so — fix: there are {known}")


def _question(plans: Sequence[InstallPlan]) -> str:
    servers = sum(len(plan.moves) for plan in plans)
    clients = len({plan.place.client for plan in plans})
    move = f"Move {format_count(servers, 'server')} of {format_count(clients, 'client')} behind riglm?"
    return move if servers else "Bring riglm's entry up to date?"


def _print_plans(
    command: str, plans: Sequence[Plan], whose: Callable[[Plan], str], show: Callable[[Plan], None], *, diff: bool
) -> None:
    """Print what each plan changes, with `show`, or why it cannot."""
    lines = ChangedLines([rewriting for plan in plans for rewriting in plan.rewritings]) if diff else None
    for plan in plans:
        if plan.fault:
            typer.echo(f"{whose(plan)}: {plan.fault}", err=True)
            continue
        show(plan)
        if lines is not None:
            lines.print(plan.rewritings)
    if lines is None and any(plan.changes for plan in plans):
        typer.echo(f"`riglm {command} --diff --dry-run` shows the changed lines of each file.")


def _whose(plan: InstallPlan) -> str:
    return f"{plan.place.client} in {plan.place.project}" if plan.place.project else plan.place.client


def _print_plan(plan: InstallPlan) -> None:
    typer.echo(f"{_whose(plan)}: {plan.place.file}")
    if plan.moves:
        moved = [each.name if each.name == each.behind else f"{_shown_name(each.name)}, as {each.behind}"
                 for each in plan.moves]  # fmt: skip
        _print_list("behind riglm", [", ".join(moved)])
    _print_list("stays", [f"{_shown_name(name)}: {why}" for name, why in plan.stays.items()])
    _print_list("note", plan.notes)
    if not plan.changes:
        typer.echo("  nothing to change")


def _short(file: Path) -> str:
    """Return a path with `~` for the home directory."""
    return f"~/{file.relative_to(Path.home())}" if file.is_relative_to(Path.home()) else str(file)


def _print_absent(clients: Sequence[str], directory: Path | None, plans: Sequence[InstallPlan]) -> None:
    found = {plan.place.client for plan in plans}
    where = f"for work in {directory}" if directory is not None else "on this machine"
    absent = [f"{name} has no" for name in clients if name not in found]
    if not plans and not clients:
        absent = ["no client has"]
    for whose in absent:
        typer.echo(f"{whose} servers {where} that riglm knows of and that are not behind it already")


def _print_hints(context: SetupContext, clients: Sequence[str], plans: Sequence[InstallPlan]) -> None:
    """Print that this directory has servers, too, and what to write where riglm does not edit the file."""
    seen = {plan.place for plan in plans}
    here = SetupPlanner(context).plans(clients, Path.cwd())
    files = [printable(plan.place.file.name) for plan in here if plan.moves and plan.place not in seen]
    if files:
        typer.echo(f"this directory has project servers ({', '.join(files)}): `riglm init --project .` moves those")
    for title, file, (program, *words) in () if clients else unedited():
        arguments = [*words, "run", "--", "COMMAND", "ARGUMENT"]
        typer.echo(f"{title}: {_short(file)}: riglm does not edit this file — fix: in a server of type stdio, write")
        typer.echo(f"    cmd: {json.dumps(program)}\n    args: {json.dumps(arguments)}")


def _fields(plan: InstallPlan, *, done: bool) -> dict[str, Any]:
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
        "stays": [{"name": name, "why": why} for name, why in plan.stays.items()],
        "sign_ins": list(plan.sign_ins),
        "notes": list(plan.notes),
        "fault": plan.fault or None,
    }


def undo(
    client: ClientOption = None,
    project: ProjectOption = None,
    diff: DiffOption = False,
    dry_run: SetupDryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Restore your clients' files, to the byte.

    This reverts `riglm init`.

    A file that was changed since keeps its changes: riglm's entry goes, the servers return. What was recorded and
    learned stays. Exit code 3: shown, but not confirmed.
    """
    context = setup_context(project=project)
    clients, directory = _require_clients(client), project and project.resolve()
    plans = plan_undo(context, clients, directory)
    _require_directory(project, plans)
    doable = [plan for plan in plans if not plan.fault]

    def show() -> None:
        _print_plans("undo", plans, lambda plan: plan.place.client, _print_undo_plan, diff=diff)
        if not plans:
            _print_where(context, clients, directory)

    tried = _carry_out(
        partial(undo_plan, context),
        plans,
        doable,
        show,
        lambda plans, done: {"done": done and bool(doable), "files": [_undo_fields(plan, done=done) for plan in plans]},
        "",
        question="" if dry_run else f"Take riglm out of {format_count(len(doable), 'file')}?",
        is_agreed=yes and not dry_run,
        as_json=as_json,
    )
    raise typer.Exit(1 if any(plan.fault for plan in (*plans, *tried)) else 0)


def _print_undo_plan(plan: UndoPlan) -> None:
    outcome = "becomes what it was, to the byte" if plan.is_exact else "was changed since, and keeps those changes"
    if plan.is_missing:
        outcome = "was deleted with its folder, and is not restored"
    typer.echo(f"{plan.place.client}: {plan.place.file} {outcome}")
    _print_list("returns", map(_shown_name, plan.returns))
    _print_list("note", plan.notes)


def _print_where(context: SetupContext, clients: Sequence[str], directory: Path | None) -> None:
    """Print where the setup journal was looked for if there is none, and what to do while riglm is running."""
    if known := dict.fromkeys(f"{one.client} ({one.file})" for one in context.journal.all()):
        typer.echo(f"there is nothing to take back of what you named; `riglm init` set up {', '.join(known)}")
        return
    looked_in = " or ".join(map(str, context.journal.directories))
    typer.echo(f"there is nothing to take back: no record of `riglm init` in {looked_in}")
    for one in riglm_entries(directory=directory):
        is_asked = not clients or one.client in clients
        if one.entry and is_asked and (directory is None or one.file.is_relative_to(directory)):
            typer.echo(
                f"  {one.client} starts riglm as {one.entry!r} ({one.file}): if `riglm init` wrote that, run this with "
                "RIGLM_DATA_DIR or XDG_DATA_HOME as it was then; otherwise take the entry out by hand"
            )


def _undo_fields(plan: UndoPlan, *, done: bool) -> dict[str, Any]:
    return {
        "done": done and not plan.fault,
        "client": plan.place.client,
        "file": str(plan.place.file),
        "exact": plan.is_exact,
        "returns": list(plan.returns),
        "notes": list(plan.notes),
        "fault": plan.fault or None,
    }
