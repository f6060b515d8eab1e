"""`riglm enforce` and `riglm shadow`: apply filtering, or only record what it would hide."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.output import ConfigOption, JsonOption, print_json, printable
from riglm.cli.store_access import configuration_of, find_configurations
from riglm.domain.errors import ConfigurationError, UnusableInputError
from riglm.domain.exposure import Mode

if TYPE_CHECKING:
    from riglm.adapters.configuration.loading import Configuration
    from riglm.domain.client_setup import InstallPlan

ModeDryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


def enforce(dry_run: ModeDryRunOption = False, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Enable filtering: clients get only the selected tools.

    It changes filtering.mode in the store, for all riglm processes that use it: those that run follow within seconds.
    A client that defers the tools of all servers is set up to load riglm's, which are few then.
    """
    _switch_mode("enforce", config, dry_run=dry_run, as_json=as_json)


def shadow(dry_run: ModeDryRunOption = False, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List all tools, and record what filtering would hide. Denied tools stay denied.

    It changes filtering.mode in the store, for all riglm processes that use it: those that run follow within seconds.
    A client that defers the tools of all servers defers riglm's again.
    """
    _switch_mode("shadow", config, dry_run=dry_run, as_json=as_json)


def _switch_mode(mode: Mode, config: Path | None, *, dry_run: bool, as_json: bool) -> None:
    files = find_configurations(config)
    if not files:
        raise UnusableInputError(
            "there is no configuration to change: no riglm.yaml here, and none that `riglm init` made — fix: name it "
            "with --config, or set RIGLM_FILTERING__MODE where riglm is started"
        )
    stores = [_change_store(mode, each, dry_run=dry_run) for each in _list_configurations(files, mode)]
    clients = [
        {"client": each.place.client, "file": str(each.place.file), "trouble": each.fault or None}
        for each in _change_preloading(mode, files, dry_run=dry_run)
    ]
    report = {"mode": mode, "dry_run": dry_run, "stores": stores, "clients": clients}
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if any(each["trouble"] for each in clients):
        raise typer.Exit(1)


def _list_configurations(files: Sequence[Path], mode: Mode) -> "list[Configuration]":
    """Return one configuration for each store; one with another mode if there is any."""
    from riglm.adapters.configuration.locations import store_url

    found: dict[str, Configuration] = {}
    for file in files:
        configuration = configuration_of(file)
        if mode == "enforce" and not configuration.settings.filtering.enabled:
            raise ConfigurationError(
                f"{file}: filtering.enabled is false, so nothing would be hidden — fix: remove it first"
            )
        other = found.setdefault(store_url(configuration.settings), configuration)
        if other.settings.filtering.mode == mode:
            found[store_url(configuration.settings)] = configuration
    return list(found.values())


def _change_store(mode: Mode, configuration: "Configuration", *, dry_run: bool) -> dict[str, Any]:
    from riglm.adapters.configuration.locations import store_url
    from riglm.container import Container
    from riglm.domain.redaction import mask_url

    settings = configuration.settings
    before = settings.filtering.mode
    if before != mode and not dry_run:
        with Container(settings=settings).analytics() as store:
            store.put_setting_changes({"filtering.mode": mode})
    place = mask_url(store_url(settings)).removeprefix("sqlite:///")
    return {"store": place, "before": before, "changed": before != mode, "strategy": settings.filtering.strategy}


def _change_preloading(mode: Mode, files: Sequence[Path], *, dry_run: bool) -> "Sequence[InstallPlan]":
    """Have clients that defer the tools of all servers load those of riglm, or defer them again."""
    from riglm.application.setup.init import SetupPlanner, install_each
    from riglm.cli.setup_access import setup_context

    context = setup_context()
    plans = SetupPlanner(context).preload_plans(files, is_on=mode == "enforce")
    return plans if dry_run else install_each(context, plans)


def _print_report(report: dict[str, Any]) -> None:
    mode, verb = report["mode"], "would be" if report["dry_run"] else "is now"
    for each in report["stores"]:
        store = printable(each["store"])
        if not each["changed"]:
            typer.echo(f"{store}: filtering.mode is {mode} already")
            continue
        typer.echo(f"{store}: filtering.mode {verb} {mode} (it was {each['before']})")
        if each["strategy"] != "prediction":
            strategy = each["strategy"]
            typer.echo(f"  filtering.strategy is {strategy}: nothing is predicted, and the mode changes no list")
    if any(each["changed"] for each in report["stores"]) and not report["dry_run"]:
        typer.echo("riglm processes that run follow within seconds; `riglm config reset filtering.mode` reverts it")
    does = "loads riglm's tools at once" if mode == "enforce" else "defers riglm's tools"
    for each in report["clients"]:
        file = printable(each["file"])
        if each["trouble"]:
            typer.echo(f"{file} was not changed: {printable(each['trouble'])}")
        else:
            typer.echo(f"{file} {'would change' if report['dry_run'] else 'changed'}: {each['client']} {does}")
