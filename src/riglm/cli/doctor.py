"""`riglm doctor`: what works, what does not, and what to do about it."""

import asyncio
import contextlib
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import Annotated, Any, Final

import typer

from riglm.adapters.analytics.inspection import inspect_store
from riglm.adapters.configuration.loading import Configuration, Options, load, with_setting_changes
from riglm.adapters.configuration.locations import ACCOUNTS, data_directory, store_path
from riglm.adapters.configuration.presence import missing_parts, started_in
from riglm.adapters.doctor import find_listener, find_schema_fault, is_writable, shared_mode, version_of_riglm
from riglm.application.owners import server_info
from riglm.application.setup.doctor_checks import (
    Check,
    ListenAddress,
    Look,
    check_configuration,
    check_embedder,
    check_machine,
    check_ports,
    check_problems,
    in_thread,
    run_checks,
    secrets_to_hide,
)
from riglm.application.setup.server_checks import (
    ServerOutputLog,
    ServerProber,
    check_missing_parts,
    check_servers,
    check_without_start,
)
from riglm.application.setup.store_checks import check_client_files, check_store, check_store_files
from riglm.cli.output import ConfigOption, JsonOption, McpJsonOption, print_json, printable, progress
from riglm.cli.setup_access import configurations_in_use, installations, is_named, riglm_entries
from riglm.cli.store_access import read_setting_changes
from riglm.container import Container
from riglm.domain.client_setup import ENTRY, ClientSetup
from riglm.domain.doctor import DoctorSection, Finding, Severity, is_healthy
from riglm.domain.duration import format_count
from riglm.domain.errors import AnalyticsUnavailableError, ConfigurationError
from riglm.domain.redaction import Redactor, holds_secret, sounds_secret
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.tool_pin import OnChange
from riglm.domain.upstream import UpstreamSpec

_MIN_SECONDS: Final = 30.0
_PROBES: Final = 4  # the probe itself, the other era, the end of the process, and others before it
_WIDTH_OF_A_PIPE: Final = 160
_LOOKS: Final = {
    Severity.OK: ("ok", "green"),
    Severity.NOTE: ("note", "cyan"),
    Severity.WARNING: ("warning", "yellow"),
    Severity.ERROR: ("error", "bold red"),
}
_BAD: Final = (Severity.ERROR, Severity.WARNING)


def doctor(
    config: ConfigOption = None,
    mcp_json: McpJsonOption = None,
    only: Annotated[
        list[DoctorSection] | None,
        typer.Option("--only", metavar="SECTION", help="Only this section; may be repeated."),
    ] = None,
    no_upstreams: Annotated[bool, typer.Option("--no-upstreams", help="Start no servers and ask none.")] = False,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", min=0.5, max=600, help="Seconds to wait for each server.")
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Check the configuration, servers, store, model and clients.

    Nothing is changed, and a running riglm is not disturbed. Sections: configuration, servers, tools, store, embedder,
    ports, clients, knowledge, machine. Exit codes: 0 healthy, 1 there is a warning or an error, 2 the configuration
    cannot be used.
    """
    setups = installations()
    in_use = configurations_in_use(Options(config=config, mcp_json=mcp_json), setups)
    subjects = [_subject(each, setup, is_alone=len(in_use) == 1) for each, setup in in_use]
    log = ServerOutputLog()
    checks = _list_checks(subjects, setups, None if no_upstreams else ServerProber(log, deadline), deadline)
    with log, progress("examining", len(checks)) as advance:
        limit = _PROBES * deadline + _MIN_SECONDS
        looking = run_checks(checks, only=only or list(DoctorSection), seconds=limit, on_done=lambda: advance(1))
        findings = asyncio.run(looking)
    configured = (each.configuration.settings for each in subjects if each.configuration)
    secrets = [secret for settings in configured for secret in secrets_to_hide(settings)]
    # A server may quote what it was given, by riglm or by the environment.
    secrets += [value for name, value in os.environ.items() if sounds_secret(name) and holds_secret(name, value)]
    clean = Redactor(secrets)
    findings = [replace(each, place=clean(each.place), what=clean(each.what), fix=clean(each.fix)) for each in findings]
    if as_json:
        counts = {severity.value: sum(each.severity is severity for each in findings) for severity in Severity}
        found = [asdict(each) for each in findings]
        print_json({"healthy": is_healthy(findings), "counts": counts, "findings": found})
    else:
        _print_report(findings)
    if any(each.problems for each in subjects):
        raise typer.Exit(2)
    if not is_healthy(findings):
        raise typer.Exit(1)


def _print_report(findings: Sequence[Finding]) -> None:
    """Print a table for each section, and a line that sums up."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
    with console.capture() as captured:
        for section, group in groupby(findings, key=lambda each: each.section):
            console.print(Text(section.value.capitalize(), style="bold"))
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(no_wrap=True)
            table.add_column(overflow="fold", max_width=56)
            table.add_column(overflow="fold")
            for each in group:
                word, style = _LOOKS[each.severity]
                what = Text(printable(each.what))
                if each.fix:
                    what.append("\nfix: ", style="bold").append(printable(each.fix), style="not bold")
                table.add_row(f"  [{style}]{word}[/]", Text(printable(each.place)), what)
            console.print(table, end="\n\n")
        errors, warnings = (sum(each.severity is severity for each in findings) for severity in _BAD)
        words = [format_count(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
        style = "bold red" if errors else "yellow" if warnings else "green"
        console.print(Text(f"found {' and '.join(words)}" if words else "healthy", style=style))
    typer.echo("\n".join(line.rstrip() for line in captured.get().rstrip().split("\n")))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """One configuration that is examined.

    `problems` are the reasons why it cannot be used; `configuration` is then the part that could be read without its
    servers, if any. `setup` is what `riglm init` did when it made it. `is_found` is True if the file was neither named
    nor created by `riglm init`, but lies in the working directory.
    """

    label: str
    configuration: Configuration | None
    problems: str
    setup: ClientSetup | None
    is_found: bool


def _list_checks(
    subjects: Sequence[_Subject], setups: Sequence[ClientSetup], prober: ServerProber | None, seconds: float
) -> list[Check]:
    """Return the checks to run; with a `prober`, servers are started, each for at most `seconds`."""
    known = [each.configuration for each in subjects if each.configuration is not None]
    checks = [check for subject in subjects for check in _subject_checks(subject, prober, seconds)]
    if known:
        rules = {each.setup.client if each.setup else "": each.configuration.settings.filtering
                 for each in subjects if each.configuration}  # fmt: skip
        on_change = {name: mode for each in known for name, mode in each.settings.on_change().items()}
        checks += _common_checks(known[0].settings, rules, on_change)
    version, enforced = str(server_info()["version"]), {each.file for each in known if _is_enforced(each.settings)}
    return [
        *checks,
        _check(
            DoctorSection.CLIENTS,
            lambda: check_client_files(riglm_entries(), setups, version_of_riglm, version=version, enforced=enforced),
        ),
        _check(DoctorSection.MACHINE, check_machine, version, sys.argv[0], platform.python_version(), sys.platform),
    ]


def _check(
    section: DoctorSection, look: Callable[..., Iterable[Finding]], *arguments: Any, label: str = "", **options: Any
) -> Check:
    return Check((section,), in_thread(partial(look, *arguments, **options)), label)


def _subject(options: Options, setup: ClientSetup | None, *, is_alone: bool) -> _Subject:
    from riglm.cli.config import require_parts

    configuration: Configuration | None = None
    problems = ""
    try:
        configuration = load(options)
        with contextlib.suppress(AnalyticsUnavailableError):  # the check of the store reports it
            configuration = with_setting_changes(configuration, read_setting_changes(configuration.settings))
    except ConfigurationError as error:
        configuration, problems = None, str(error)
        with contextlib.suppress(ConfigurationError):
            configuration = load(Options(config=options.config, with_servers=False))
    else:
        try:
            require_parts(configuration)
        except ConfigurationError as error:
            problems = str(error)
    return _Subject(
        label=options.config.stem if options.config and not is_alone else "",
        configuration=configuration,
        problems=problems,
        setup=setup,
        is_found=configuration is not None and configuration.file is not None and not is_named(options),
    )


def _is_enforced(settings: Settings) -> bool:
    rules = settings.filtering
    return rules.is_on and rules.strategy != "none" and rules.mode == "enforce"


def _subject_checks(subject: _Subject, prober: ServerProber | None, seconds: float) -> list[Check]:
    """Return the checks of one configuration and its servers."""
    section, label, configuration = DoctorSection.CONFIGURATION, subject.label, subject.configuration
    checks = [_check(section, check_problems, subject.problems, label=label)] if subject.problems else []
    if configuration is None:
        what = "servers, store, model and ports were not checked, because they are unknown"
        return [*checks, _check(section, list, [Finding(section, Severity.NOTE, "the rest", what)], label=label)]
    settings, file = configuration.settings, configuration.file
    if not subject.problems:
        mode = shared_mode(file) if file else None
        checks.append(_check(section, check_configuration, file, settings, configuration.warnings, mode, label=label))
    project = subject.setup.place.project if subject.setup else None
    missing: list[Finding] = []
    there: list[UpstreamSpec] = []
    for spec in (started_in(project, each) for each in settings.upstream_specs()):
        parts = list(missing_parts(spec, configuration, os.environ))
        for part in parts:
            is_program = part.path.endswith(".command") and " " not in spec.command[0]
            missing.append(check_missing_parts(spec, part.what, part.fix, is_program=is_program))
        there += [] if parts else [spec]
    if prober is not None and not subject.is_found:
        if there:
            look = _probe_servers(settings, there, prober, subject, seconds)
            checks.append(Check((DoctorSection.SERVERS, DoctorSection.TOOLS), look, label))
    else:
        fix = f"riglm doctor --config {file}" if prober is not None else ""
        missing += [check_without_start(spec, fix) for spec in there]
    return [*checks, _check(DoctorSection.SERVERS, list, missing, label=label)]


def _probe_servers(
    settings: Settings, specs: Sequence[UpstreamSpec], prober: ServerProber, subject: _Subject, seconds: float
) -> Look:
    from riglm.adapters.mcp.upstream.upstreams import Upstreams

    least = {key: min(getattr(settings.timeouts, key), seconds) for key in ("connect", "initialize", "list")}
    timeouts = settings.timeouts.model_copy(update=least)
    upstreams = Upstreams(specs, timeouts, settings.limits.message_bytes, Container().account_file)
    setup = subject.setup
    return partial(
        check_servers,
        partial(upstreams.opened, lambda _upstream, _tool: None),
        prober,
        settings,
        find_schema_fault,
        client=setup.client if setup else "",
        entry=setup.entry if setup else ENTRY,
    )


def _common_checks(
    settings: Settings, rules: Mapping[str, FilteringSettings], on_change: Mapping[str, OnChange]
) -> list[Check]:
    """Return the checks of what all configurations have in common."""
    from riglm.adapters.spool.file_lock import LOCK
    from riglm.cli.config import examine_embedder

    serving = ""
    with contextlib.suppress(OSError):  # read without locking it
        serving = (data_directory(os.environ) / LOCK).read_text("utf-8", "replace")
    embedder = settings.embedder
    wanted = embedder.provider if embedder.provider == "static" else embedder.model
    load_model = partial(examine_embedder, embedder) if settings.intercepts_lists else None
    places = [ListenAddress("downstream", settings.downstream.host, settings.downstream.port, "riglm serve", False)]
    if settings.control.enabled:
        places.append(ListenAddress("control", settings.control.host, settings.control.port, "the control API", True))
    checks = [
        _check(DoctorSection.EMBEDDER, check_embedder, wanted, load_model),
        _check(DoctorSection.PORTS, check_ports, places, partial(find_listener, serving=serving)),
    ]
    if settings.storage.kind == "memory":
        what = "the store is in memory: nothing that is recorded outlives its process"
        note = Finding(DoctorSection.STORE, Severity.NOTE, "storage.kind", what)
        return [*checks, _check(DoctorSection.STORE, list, [note])]
    of_store = (DoctorSection.STORE, DoctorSection.CLIENTS, DoctorSection.KNOWLEDGE, DoctorSection.TOOLS)
    inspect = partial(inspect_store, Container(settings=settings).store_url(), timeout=settings.storage.timeout)
    look = partial(check_store, inspect, settings, rules, on_change)
    return [*checks, Check(of_store, in_thread(look)), _check(DoctorSection.STORE, _check_store_files, settings)]


def _check_store_files(settings: Settings) -> Iterable[Finding]:
    from riglm.adapters.control.tokens import FILE_NAME as TOKENS
    from riglm.adapters.spool.sqlite_spool import survey

    file, data = store_path(settings), data_directory(os.environ)
    private = [data / TOKENS, data / ACCOUNTS, file.parent / "riglm.key"]
    return check_store_files(
        file.parent,
        [*private, file] if settings.storage.kind == "sqlite" else private,
        survey(*Container(settings=settings).spool_paths()),
        is_writable=is_writable(file.parent),
        shared_mode=shared_mode,
    )
