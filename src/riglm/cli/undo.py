"""`riglm undo`: clients start their servers themselves again."""

from typing import TYPE_CHECKING, Any

import typer

from riglm.cli.installing_output import (
    NOT_CONFIRMED,
    ClientOption,
    DryRunOption,
    ProjectOption,
    YesOption,
    confirmed,
    known_clients,
    print_fault,
    print_list,
    print_rewritings,
    shown_name,
)
from riglm.cli.options import JsonOption
from riglm.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riglm.domain.installation import UndoPlan


def undo(
    client: ClientOption = None,
    project: ProjectOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take back what `riglm init` did: the clients' files become what they were, to the byte.

    A file that was changed since keeps its changes: riglm's entry goes, the servers return. What was recorded and
    learned stays. Exit code 3: shown, and nobody said yes.
    """
    from riglm.composition.installing import installing

    undoer = installing().undoer
    plans = undoer.plans(known_clients(client), project and project.resolve())
    doable = [plan for plan in plans if not plan.fault]
    if not as_json:
        _show(plans)
    if dry_run or not doable:
        _end(plans, done=False, as_json=as_json)
    if not yes and not confirmed(f"Take riglm out of {len(doable)} file(s)?", as_json=as_json):
        if as_json:
            print_json(_as_json(plans, done=False))
        raise typer.Exit(NOT_CONFIRMED)
    tried = undoer.undo_each(doable)
    if not as_json:
        _tell(tried)
    _end([*(plan for plan in plans if plan.fault), *tried], done=True, as_json=as_json)


def _tell(tried: "Sequence[UndoPlan]") -> None:
    for plan in tried:
        if plan.fault:
            print_fault(f"not done for {plan.client}, {plan.file}", plan.fault)
    if clients := dict.fromkeys(plan.client for plan in tried if not plan.fault):
        typer.echo(f"done: start {', '.join(clients)} again")


def _show(plans: "Sequence[UndoPlan]") -> None:
    from riglm.composition.installing import cover

    covered = cover([rewriting for plan in plans for rewriting in plan.rewritings])
    for plan in plans:
        if plan.fault:
            print_fault(plan.client, plan.fault)
            continue
        typer.echo(f"{plan.client}: {plan.file} {_outcome(plan)}")
        print_list("returns", map(shown_name, plan.returns))
        print_list("note", plan.notes)
        print_rewritings(plan.rewritings, covered)
    if not plans:
        typer.echo("there is nothing to take back")


def _outcome(plan: "UndoPlan") -> str:
    if plan.is_gone:
        return "is gone with its folder, and stays so"
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
