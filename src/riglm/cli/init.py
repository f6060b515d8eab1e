"""`riglm init`: the servers of the clients on this machine go behind riglm."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from riglm.cli.output import print_json, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riglm.composition.installing import Installing
    from riglm.domain.installation import InstallPlan


def init(
    client: ClientOption = None,
    project: ProjectOption = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="SERVER", help="Move this server although you may have to sign in to it."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move the servers of the clients on this machine behind riglm, in shadow mode: everything stays visible.

    Shows what would change and asks. `riglm undo` takes it back. Exit code 3: shown, and nobody said yes.
    """
    from riglm.composition.installing import installing

    parts = installing(anyway=include or ())
    plans = parts.planner.plans(known_clients(client), project and project.resolve())
    changing = [plan for plan in plans if plan.changes]
    if not as_json:
        _show(plans)
        _hint(parts, client, project, plans)
    if dry_run or not changing:
        _end(plans, done=False, as_json=as_json)
    if not yes and not confirmed(_question(changing), as_json=as_json):
        if as_json:
            print_json(_as_json(plans, done=False))
        raise typer.Exit(NOT_CONFIRMED)
    tried = parts.installer.install_each(changing)
    if not as_json:
        _tell(tried)
    _end([*(plan for plan in plans if not plan.changes), *tried], done=True, as_json=as_json)


def _tell(tried: "Sequence[InstallPlan]") -> None:
    for plan in tried:
        if plan.fault:
            print_fault(f"not done for {plan.place.client}, {plan.place.file}", plan.fault)
    if clients := dict.fromkeys(plan.place.client for plan in tried if not plan.fault):
        typer.echo(
            f"done: start {', '.join(clients)} again. Nothing is hidden yet; `riglm report` tells after some days what "
            "would be. `riglm undo` takes it back."
        )


def _show(plans: "Sequence[InstallPlan]") -> None:
    from riglm.composition.installing import cover

    covered = cover([rewriting for plan in plans for rewriting in plan.rewritings])
    for plan in plans:
        whose = f" in {plan.place.project}" if plan.place.project else ""
        if plan.fault:
            print_fault(f"{plan.place.client}{whose}", plan.fault)
            continue
        typer.echo(f"{plan.place.client}{whose}: {plan.place.file}")
        print_list("goes behind riglm", [_moved(move.name, move.behind) for move in plan.moves])
        print_list("stays", [f"{shown_name(stay.name)}: {stay.why}" for stay in plan.stays])
        print_list("note", plan.notes)
        if not plan.changes:
            typer.echo("  nothing to change")
        print_rewritings(plan.rewritings, covered)
    if not plans:
        typer.echo("no client on this machine has servers that riglm knows of")


def _moved(name: str, behind: str) -> str:
    return name if name == behind else f"{shown_name(name)}, as {behind}"


def _hint(parts: "Installing", client: list[str] | None, project: Path | None, plans: "Sequence[InstallPlan]") -> None:
    if project is not None:
        return
    seen = {plan.place for plan in plans}
    here = [plan for plan in parts.planner.plans(client or (), Path.cwd()) if plan.moves and plan.place not in seen]
    if here:
        files = ", ".join(printable(plan.place.file.name) for plan in here)
        typer.echo(f"this directory has servers of its own ({files}): `riglm init --project .` moves those")


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
        "notes": list(plan.notes),
        "fault": plan.fault or None,
    }
