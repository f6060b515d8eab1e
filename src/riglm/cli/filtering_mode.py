"""`riglm enforce` and `riglm shadow`: let filtering count, or only be recorded."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.control import ControlApi, ControlApiRejectedError, ControlApiUnavailableError, configured
from riglm.cli.output import ConfigOption, JsonOption, json_time, print_json, printable
from riglm.cli.store_access import find_configurations, find_store, list_installations, read_settings
from riglm.domain.errors import ConfigurationError, RiglmError, UnusableInputError
from riglm.domain.exposure import Mode

if TYPE_CHECKING:
    from riglm.adapters.configuration.file_changes import ModeSwitch
    from riglm.domain.client_setup import InstallPlan

ClientsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--client", metavar="NAME", help="Only what `riglm init` set up for this client; any number of times."
    ),
]
ModeDryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
FileOnlyOption = Annotated[bool, typer.Option("--file-only", help="Leave a riglm that runs as it is.")]
ControlUrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Where the control API is; by default as the configuration says."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="RIGLM_CONTROL_TOKEN",
        show_envvar=False,
        help="The token to change with; in RIGLM_CONTROL_TOKEN others on this machine do not see it.",
    ),
]


def enforce(
    client: ClientsOption = None,
    dry_run: ModeDryRunOption = False,
    file_only: FileOnlyOption = False,
    url: ControlUrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enable filtering: clients get only the selected tools.

    A client that defers the tools of all servers is set up to load riglm's, which are few then.

    It changes filtering.mode in the configuration, ./riglm.yaml or those that `riglm init` made, and in a riglm that
    runs with a control API.
    """
    _switch("enforce", config, client, url, token, dry_run=dry_run, file_only=file_only, as_json=as_json)


def shadow(
    client: ClientsOption = None,
    dry_run: ModeDryRunOption = False,
    file_only: FileOnlyOption = False,
    url: ControlUrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all tools, and record what filtering would hide.

    Denied tools stay denied. A client that defers the tools of all servers defers riglm's again.

    It changes filtering.mode in the configuration, ./riglm.yaml or those that `riglm init` made, and in a riglm that
    runs with a control API.
    """
    _switch("shadow", config, client, url, token, dry_run=dry_run, file_only=file_only, as_json=as_json)


def _switch(
    mode: Mode,
    config: Path | None,
    clients: Sequence[str] | None,
    url: str | None,
    token: str | None,
    *,
    dry_run: bool,
    file_only: bool,
    as_json: bool,
) -> None:
    files = _files(config, clients)
    found = _prepared(files, mode)
    for each in found:
        _discard(each)
    live = None if file_only else _live(mode, files[0], url, token, dry_run=dry_run)
    if not dry_run:
        _take_over(_prepared(files, mode))  # again: a running riglm may have written its file meanwhile
    preloading = _preloading(files, mode, dry_run=dry_run)
    clients_of = {file: name for name, file in list_installations()}
    report = {
        "mode": mode,
        "dry_run": dry_run,
        "files": [
            {
                "file": str(each.file),
                "client": clients_of.get(each.file),
                "before": each.before,
                "changed": each.replacement is not None,
                "lines": list(each.lines),
                "strategy": each.strategy,
            }
            for each in found
        ],
        "clients": [
            {"client": each.place.client, "file": str(each.place.file), "trouble": each.fault or None}
            for each in preloading
        ],
        "live": live,
        "open_sessions": _open_sessions(files[0]) if any(each.replacement for each in found) else [],
    }
    if as_json:
        print_json(report)
    else:
        _notify(report)
    if any(each.fault for each in preloading):
        raise typer.Exit(1)


def _files(config: Path | None, clients: Sequence[str] | None) -> list[Path]:
    if clients is None:
        found = find_configurations(config)
        if not found:
            raise UnusableInputError(
                "there is no configuration to change: no riglm.yaml here, and none that `riglm init` made — fix: name "
                "it with --config, or set RIGLM_FILTERING__MODE where riglm is started"
            )
        return found
    if config is not None:
        raise typer.BadParameter("name either --client or --config", param_hint="--client")
    known = list_installations()
    for name in clients:
        if name not in {client for client, _ in known}:
            names = ", ".join(sorted({client for client, _ in known})) or "none"
            raise typer.BadParameter(f"{name!r} is none that `riglm init` set up: {names}", param_hint="--client")
    return [file for client, file in known if client in clients]


def _prepared(files: Sequence[Path], mode: Mode) -> "list[ModeSwitch]":
    """All files made ready, or none."""
    from riglm.adapters.configuration.file_changes import switch_mode

    found: list[ModeSwitch] = []
    try:
        found += (switch_mode(file, mode) for file in files)
    except BaseException:
        for each in found:
            _discard(each)
        raise
    return found


def _take_over(found: "Sequence[ModeSwitch]") -> None:
    from riglm.domain.control import ControlError

    try:
        for each in found:
            if each.replacement is not None:
                each.replacement.take_over()
    except ControlError as error:
        raise ConfigurationError(str(error)) from error
    finally:
        for each in found:
            _discard(each)


def _discard(one: "ModeSwitch") -> None:
    if one.replacement is not None:
        one.replacement.discard()


def _preloading(files: Sequence[Path], mode: Mode, *, dry_run: bool) -> "Sequence[InstallPlan]":
    """Have clients that defer the tools of all servers load those of riglm, or defer them again; what was done."""
    from riglm.application.setup.init import SetupPlanner, install_each
    from riglm.cli.setup_access import setup_context

    context = setup_context()
    plans = SetupPlanner(context).preload_plans(files, is_on=mode == "enforce")
    return plans if dry_run else install_each(context, plans)


def _live(mode: Mode, file: Path, url: str | None, token: str | None, *, dry_run: bool) -> dict[str, Any] | None:
    """What became of a riglm that runs with a control API; None when none answers and none was named.

    Raises:
        ControlApiUnavailableError: one was named, and does not answer.
    """
    its_url, its_token = configured(file, may_write=True)
    api = ControlApi(url or its_url, token or (its_token if url is None else None))
    try:
        before = api.get("/config")["filtering"]["mode"]
    except ControlApiRejectedError as error:
        return {"url": api.url, "before": None, "changed": False, "trouble": str(error)}
    except (ControlApiUnavailableError, TypeError, KeyError):
        if url is not None:
            raise
        return None
    report = {"url": api.url, "before": before, "changed": before != mode, "trouble": None}
    if before != mode and url is None and not read_settings(file).control.enabled:
        trouble = f"it may go by another configuration, since {file} asks for no control API — fix: name it with --url"
        return {**report, "changed": False, "trouble": trouble}
    if before == mode or dry_run:
        return report
    document = {"filtering": {"mode": mode}}
    try:
        try:
            api.put("/config?persist=true", document)
        except ControlApiRejectedError:  # its file cannot be changed, or it has none: what runs can
            api.put("/config", document)
    except (ControlApiUnavailableError, ControlApiRejectedError) as error:
        return {**report, "changed": False, "trouble": str(error)}
    return report


def _open_sessions(file: Path) -> list[dict[str, Any]]:
    """The sessions that riglm may still serve by what it read at its start; none where the store cannot say."""
    with contextlib.suppress(RiglmError):
        store = find_store(read_settings(file))
        if store is not None:
            with store:
                found = [summary.session for summary in store.list_sessions(20, active_only=True)]
            return [
                {"client": one.client.name, "transport": one.transport.value, "started_at": json_time(one.started_at)}
                for one in found
            ]
    return []


def _notify(report: dict[str, Any]) -> None:
    mode, would = report["mode"], "would say" if report["dry_run"] else "says now"
    for one in report["files"]:
        file = printable(one["file"])
        if not one["changed"]:
            typer.echo(f"{file}: filtering.mode is {mode} already")
            continue
        typer.echo(f"{file} {would} filtering.mode: {mode} (it was {one['before']})")
        for line in one["lines"]:
            typer.echo(f"  {printable(line)}")
        if one["strategy"] != "prediction":
            typer.echo(f"  filtering.strategy is {one['strategy']}: nothing is predicted, and the mode changes no list")
    _tell_clients(report)
    _tell_live(report)
    if any(one["changed"] for one in report["files"]):
        _tell_restart(report)


def _tell_clients(report: dict[str, Any]) -> None:
    does = "loads riglm's tools at once" if report["mode"] == "enforce" else "defers riglm's tools"
    for one in report["clients"]:
        file = printable(one["file"])
        if one["trouble"]:
            typer.echo(f"{file} was not changed: {printable(one['trouble'])}")
        else:
            typer.echo(f"{file} {'would change' if report['dry_run'] else 'changed'}: {one['client']} {does}")


def _tell_live(report: dict[str, Any]) -> None:
    live, mode = report["live"], report["mode"]
    if live is None:
        return
    if live["trouble"]:
        typer.echo(f"the riglm at {live['url']} goes on as it was: {printable(live['trouble'])}")
    elif not live["changed"]:
        typer.echo(f"the riglm at {live['url']} is in mode {mode} already")
    elif report["dry_run"]:
        typer.echo(f"the riglm at {live['url']} would change from {live['before']} to {mode} at once")
    else:
        typer.echo(f"the riglm at {live['url']} changed from {live['before']} to {mode}; its clients were notified")


def _tell_restart(report: dict[str, Any]) -> None:
    live, changed = report["live"], [one for one in report["files"] if one["changed"]]
    who = "every other riglm" if live and live["changed"] else "riglm"
    clients = ", ".join(sorted({one["client"] for one in changed if one["client"]}))
    typer.echo(
        f"{who} reads the file when it starts: restart {clients or 'your client, or riglm serve,'} for it to count"
    )
    there = Counter(one["client"] or "unnamed" for one in report["open_sessions"])
    if there:
        typer.echo(f"sessions open now: {', '.join(f'{printable(name)} ({count})' for name, count in there.items())}")
