"""`riglm undo`: clients start their servers themselves again."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from riglm.cli.init import (
    NOT_CONFIRMED,
    ClientOption,
    DiffOption,
    ProjectOption,
    SetupDryRunOption,
    YesOption,
    confirm,
    print_fault,
    print_list,
    require_clients,
    require_directory,
    shown_name,
)
from riglm.cli.output import JsonOption, print_json
from riglm.domain.plurals import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from riglm.application.setup.init import SetupContext
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
    from riglm.application.setup.undo import plan_undo, undo_each
    from riglm.cli.setup_access import setup_context

    context = setup_context(project=project)
    clients, directory = require_clients(client), project and project.resolve()
    plans = plan_undo(context, clients, directory)
    if not plans:
        require_directory(project)
    doable = [plan for plan in plans if not plan.fault]
    is_done = yes and not dry_run  # before output can fail
    tried = undo_each(context, doable) if is_done else ()
    if not as_json:
        _print_plans(plans, diff=diff)
        if not plans:
            _print_where(context, clients, directory)
    if not is_done and doable and not dry_run:
        is_done = confirm(f"Take riglm out of {format_count(len(doable), 'file')}?", as_json=as_json)
        if not is_done:
            _print_json(plans, done=False, as_json=as_json)
            raise typer.Exit(NOT_CONFIRMED)
        tried = undo_each(context, doable)
    if is_done and not as_json:
        for plan in tried:
            if plan.fault:
                print_fault(f"not done for {plan.client}, {plan.file}", plan.fault)
        if names := dict.fromkeys(plan.client for plan in tried if not plan.fault):
            typer.echo(f"done: start {', '.join(names)} again")
    plans = (*(plan for plan in plans if plan.fault), *tried) if is_done else plans
    _print_json(plans, done=is_done and bool(doable), as_json=as_json)
    raise typer.Exit(1 if any(plan.fault for plan in plans) else 0)


def _print_plans(plans: "Sequence[UndoPlan]", *, diff: bool) -> None:
    from riglm.cli.changed_lines import ChangedLines

    lines = ChangedLines([rewriting for plan in plans for rewriting in plan.rewritings]) if diff else None
    for plan in plans:
        if plan.fault:
            print_fault(plan.client, plan.fault)
            continue
        outcome = "becomes what it was, to the byte" if plan.is_exact else "was changed since, and keeps those changes"
        if plan.is_missing:
            outcome = "was deleted with its folder, and is not restored"
        typer.echo(f"{plan.client}: {plan.file} {outcome}")
        print_list("returns", map(shown_name, plan.returns))
        print_list("note", plan.notes)
        if lines is not None:
            lines.print(plan.rewritings)
    if lines is None and any(not plan.fault for plan in plans):
        typer.echo("`riglm undo --diff --dry-run` shows the changed lines of each file.")


def _print_where(context: "SetupContext", clients: "Collection[str]", directory: Path | None) -> None:
    """Print where the setup journal was looked for if there is none, and what to do while riglm is running."""
    from riglm.cli.setup_access import riglm_entries

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


def _print_json(plans: "Sequence[UndoPlan]", *, done: bool, as_json: bool) -> None:
    if not as_json:
        return
    files = [
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
    ]
    print_json({"done": done, "files": files})
