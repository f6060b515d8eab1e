"""`riglm undo`: clients start their servers themselves again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from riglm.cli.init import (
    NOT_CONFIRMED,
    ChangedLines,
    ClientOption,
    DiffOption,
    ProjectOption,
    SetupDryRunOption,
    YesOption,
    confirmed,
    known_clients,
    print_fault,
    print_list,
    print_removed,
    require_directory,
    shown_name,
)
from riglm.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from riglm.cli.setup_access import SetupServices
    from riglm.domain.client_setup import UndoPlan


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
    from riglm.cli.setup_access import installing

    parts = installing(project=project)
    clients, directory = known_clients(client), project and project.resolve()
    plans = parts.undoer.plans(clients, directory)
    if not plans:
        require_directory(project)
    doable = [plan for plan in plans if not plan.fault]
    done = _undone(parts, doable, directory) if yes and not dry_run else None  # before output can fail
    if not as_json:
        _show(plans, diff=diff)
        if not plans:
            _tell_where(parts, clients, directory)
    if done is None:
        if dry_run or not doable:
            _end(plans, done=False, as_json=as_json)
        if not confirmed(f"Take riglm out of {len(doable)} file(s)?", as_json=as_json):
            if as_json:
                print_json(_as_json(plans, done=False))
            raise typer.Exit(NOT_CONFIRMED)
        done = _undone(parts, doable, directory)
    if not as_json:
        _notify(*done)
    _end([*(plan for plan in plans if plan.fault), *done[0]], done=bool(doable), as_json=as_json)


def _undone(
    parts: "SetupServices", plans: "Sequence[UndoPlan]", directory: Path | None
) -> "tuple[tuple[UndoPlan, ...], tuple[Path, ...]]":
    """Return the plans as they were done, and the deleted files that an earlier riglm had left."""
    removed = parts.clearing.clear(directory)
    return parts.undoer.undo_each(plans), removed


def _tell_where(parts: "SetupServices", clients: "Collection[str]", directory: Path | None) -> None:
    """Report where the setup journal was looked for if there is none, and what to do while riglm is running."""
    from riglm.cli.setup_access import riglm_entries

    if known := dict.fromkeys(f"{one.client} ({one.file})" for one in parts.record.all()):
        typer.echo(f"there is nothing to take back of what you named; `riglm init` set up {', '.join(known)}")
        return
    typer.echo(f"there is nothing to take back: no record of `riglm init` in {' or '.join(map(str, parts.looked_in))}")
    for one in riglm_entries(directory=directory):
        is_asked = not clients or one.client in clients
        if one.entry and is_asked and (directory is None or one.file.is_relative_to(directory)):
            typer.echo(
                f"  {one.client} starts riglm as {one.entry!r} ({one.file}): if `riglm init` wrote that, run this with "
                "RIGLM_DATA_DIR or XDG_DATA_HOME as it was then; otherwise take the entry out by hand"
            )


def _notify(tried: "Sequence[UndoPlan]", removed: "Sequence[Path]") -> None:
    print_removed(removed)
    for plan in tried:
        if plan.fault:
            print_fault(f"not done for {plan.client}, {plan.file}", plan.fault)
    if clients := dict.fromkeys(plan.client for plan in tried if not plan.fault):
        typer.echo(f"done: start {', '.join(clients)} again")


def _show(plans: "Sequence[UndoPlan]", *, diff: bool) -> None:
    lines = ChangedLines([rewriting for plan in plans for rewriting in plan.rewritings]) if diff else None
    for plan in plans:
        if plan.fault:
            print_fault(plan.client, plan.fault)
            continue
        typer.echo(f"{plan.client}: {plan.file} {_outcome(plan)}")
        print_list("returns", map(shown_name, plan.returns))
        print_list("note", plan.notes)
        if lines is not None:
            lines.print(plan.rewritings)
    if lines is None and any(not plan.fault for plan in plans):
        typer.echo("`riglm undo --diff --dry-run` shows the changed lines of each file.")


def _outcome(plan: "UndoPlan") -> str:
    if plan.is_missing:
        return "was deleted with its folder, and is not restored"
    return "becomes what it was, to the byte" if plan.is_exact else "was changed since, and keeps those changes"


def _end(plans: "Sequence[UndoPlan]", *, done: bool, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(plans, done=done))
    raise typer.Exit(1 if any(plan.fault for plan in plans) else 0)


def _as_json(plans: "Sequence[UndoPlan]", *, done: bool) -> dict[str, Any]:
    return {
        "done": done,
        "files": [
            {
                "done": done and not plan.fault,
                "client": plan.client,
                "file": str(plan.file),
                "exact": plan.is_exact,
                "returns": list(plan.returns),
                "notes": list(plan.notes),
                "fault": plan.fault or None,
            }
            for plan in plans
        ],
    }
