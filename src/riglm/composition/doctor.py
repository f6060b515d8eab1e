"""What `riglm doctor` looks at, and with which eyes."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from riglm.adapters.configuration.loading import FILE_NAME, Configuration, Options, data_directory, load
from riglm.adapters.configuration.presence import missing_parts, require_embedder, require_predictor, started_in
from riglm.adapters.doctor import FileInspector, JsonSchemaValidator, LogCapture, PortInspector, Programs
from riglm.application.doctor.check import Check, Labelled, SharedProbe, StaticCheck
from riglm.application.doctor.clients import ClientFilesCheck, ClientsSeenCheck
from riglm.application.doctor.configuration import (
    ConfigurationCheck,
    EmbedderCheck,
    InvalidConfigurationCheck,
    KnowledgeCheck,
    ListenAddress,
    MachineCheck,
    PortsCheck,
    certain_secrets,
    secrets_to_hide,
)
from riglm.application.doctor.servers import ServerProber, ServersCheck, SkippedServersCheck, UnstartableServer
from riglm.application.doctor.store import StoreCheck
from riglm.application.doctor.tools import ChangedToolsCheck, ToolsFindings
from riglm.application.identity import server_info
from riglm.composition.accounts import account_file
from riglm.composition.client_setup import installations, riglm_entries
from riglm.composition.prediction import build_predictor
from riglm.composition.storage import intercepts_lists, spool_paths, store_path, store_url
from riglm.domain.client_setup import ENTRY, ClientSetup
from riglm.domain.client_support import support_by_key
from riglm.domain.errors import ConfigurationError
from riglm.domain.finding import DoctorSection, Severity, finding
from riglm.domain.redaction import holds_secret, sounds_secret
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.tool_pin import OnChange
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.doctor import EmbedderCheckResult, SpoolStatus, StoreStatus

if TYPE_CHECKING:
    from riglm.domain.schemas.section import EmbedderSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One configuration that is examined.

    `problems` are the reasons why it cannot be used; `configuration` is then the part that could be read without its
    servers, if any. `label` is empty where there is only one; `client` is the client that uses it, if any, `entry` its
    name for riglm, and `project` the directory in which the client starts it, for project configurations. `is_found`
    is True if the file was neither named nor created by `riglm init`, but lies in the working directory.
    """

    label: str
    configuration: Configuration | None
    problems: str = ""
    client: str = ""
    entry: str = ENTRY
    project: Path | None = None
    is_found: bool = False

    def specs(self) -> list[UpstreamSpec]:
        """The servers as the client has them started: paths that are not whole begin in its project."""
        found = self.configuration.settings.upstream_specs() if self.configuration is not None else []
        return [started_in(self.project, each) for each in found]

    def missing(self) -> Mapping[str, UnstartableServer]:
        """By name, the servers that cannot be started because something is not there."""
        found = {}
        for spec in self.specs():
            for problem in missing_parts(spec, self.configuration, os.environ) if self.configuration else ():
                is_program = problem.path.endswith(".command") and " " not in spec.command[0]
                found[spec.name] = UnstartableServer(spec, problem.what, problem.fix, is_program)
        return found


def in_use(options: Options, installed: Sequence[ClientSetup]) -> list[tuple[Options, ClientSetup | None]]:
    """The configuration in use, or where none is named or found, those that clients start riglm with.

    With each is what `riglm init` did when it made it.
    """
    files = {each.configuration: each for each in installed if each.configuration.is_file()}
    if _is_named(options) or Path(FILE_NAME).is_file() or not files:
        return [(options, files.get(options.config.absolute()) if options.config is not None else None)]
    return [(Options(config=file), each) for file, each in files.items()]


def _is_named(options: Options) -> bool:
    return options.config is not None or options.mcp_json is not None


def subjects_of(options: Options, installed: Sequence[ClientSetup]) -> list[Subject]:
    """What is examined of the configurations in use."""
    found = in_use(options, installed)
    labels = [each.config.stem if each.config and len(found) > 1 else "" for each, _ in found]  # a client may have many
    return [_subject(*each, label) for each, label in zip(found, labels, strict=True)]


def _subject(options: Options, served: ClientSetup | None, label: str = "") -> Subject:
    configuration: Configuration | None
    try:
        configuration = load(options)
        problems = "\n".join(_problems(configuration))
    except ConfigurationError as error:
        configuration, problems = _without_servers(options), str(error)
    return Subject(
        label=label,
        configuration=configuration,
        problems=problems,
        client=served.client if served is not None else "",
        entry=served.entry if served is not None else ENTRY,
        project=served.place.project if served is not None else None,
        is_found=configuration is not None and configuration.file is not None and not _is_named(options),
    )


def _without_servers(options: Options) -> Configuration | None:
    try:
        return load(Options(config=options.config, with_servers=False))
    except ConfigurationError:
        return None


def _problems(configuration: Configuration) -> list[str]:
    """All that keeps riglm from starting so, but what is missing of single servers."""
    from riglm.adapters.embedding import factory
    from riglm.adapters.embedding.factory import require_known_model
    from riglm.adapters.prediction import selection

    settings = configuration.settings

    def predictor() -> None:
        require_predictor(configuration, selection.available)
        build_predictor(settings)

    def embedder() -> None:
        require_embedder(configuration, factory.available)
        require_known_model(settings.embedder)

    found: dict[str, None] = {}
    for require in (predictor, embedder):
        try:
            require()
        except ConfigurationError as error:
            found |= dict.fromkeys(str(error).splitlines())
    return list(found)


_MIN_SECONDS: Final = 30.0
_VISITS: Final = 4  # the visit itself, the other era, the end of the process, and others before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The checks, each for at most `seconds`, and the `secrets` that no finding may show.

    `is_usable` is True if all configurations can be used.
    """

    checks: Sequence[Check]
    overhearing: LogCapture
    seconds: float
    secrets: tuple[str, ...]
    is_usable: bool


def examination(
    options: Options,
    load_embedder: "Callable[[EmbedderSettings], EmbedderCheckResult]",
    *,
    visits: bool,
    seconds: float,
) -> Examination:
    """The checks to run; with `visits`, servers are started, each for at most `seconds`."""
    installed = installations()
    subjects = subjects_of(options, installed)
    overhearing = LogCapture()
    visitor = ServerProber(overhearing, seconds) if visits else None
    checks: list[Check] = []
    for subject in subjects:
        own = _own_checks(subject, visitor, seconds)
        checks += [Labelled(check, subject.label) for check in own] if subject.label else own
    known = [subject.configuration for subject in subjects if subject.configuration is not None]
    if known:
        rules = {each.client: each.configuration.settings.filtering for each in subjects if each.configuration}
        on_change = {name: mode for each in known for name, mode in each.settings.on_change().items()}
        checks += _common_checks(known[0].settings, rules, on_change, load_embedder)
    files_check = ClientFilesCheck(
        riglm_entries, installed, FileInspector(), Programs(), version=_version(), enforced=_enforced(subjects)
    )
    checks += [files_check, _machine()]
    return Examination(
        checks=checks,
        overhearing=overhearing,
        seconds=_VISITS * seconds + _MIN_SECONDS,
        secrets=_secrets(configuration.settings for configuration in known),
        is_usable=not any(subject.problems for subject in subjects),
    )


def _enforced(subjects: Iterable[Subject]) -> set[Path | None]:
    """The files of the configurations in enforce mode; None is a configuration without a file."""
    found = [each.configuration for each in subjects if each.configuration is not None]
    rules = {each.file: each.settings.filtering for each in found}
    return {file for file, each in rules.items() if each.is_on and each.strategy != "none" and each.mode == "enforce"}


def _own_checks(subject: Subject, visitor: ServerProber | None, seconds: float) -> list[Check]:
    """The checks of one configuration and its servers."""
    configuration = subject.configuration
    checks: list[Check] = [InvalidConfigurationCheck(subject.problems)] if subject.problems else []
    if configuration is None:
        what = "servers, store, model and ports were not checked, because they are unknown"
        return [*checks, StaticCheck(finding(DoctorSection.CONFIGURATION, Severity.NOTE, "the rest", what))]
    settings = configuration.settings
    specs = subject.specs()
    if not subject.problems:
        notes = [*configuration.warnings, *_contradictions(settings)]
        names = [spec.name for spec in specs]
        files = FileInspector()
        checks.append(ConfigurationCheck(configuration.file, names, notes, files, certain_secrets(settings)))
    missing = subject.missing()
    there = [spec for spec in specs if spec.name not in missing]
    is_started = visitor is not None and not subject.is_found
    fix = f"riglm doctor --config {configuration.file}" if visitor is not None else ""
    checks.append(SkippedServersCheck(list(missing.values()), [] if is_started else there, fix=fix))
    if visitor is not None and is_started and there:
        checks.append(_visits(settings, there, visitor, subject, seconds))
    return checks


def _visits(
    settings: Settings, specs: Sequence[UpstreamSpec], visitor: ServerProber, subject: Subject, seconds: float
) -> Check:
    from riglm.adapters.mcp.upstream.factory import Upstreams

    least = {key: min(getattr(settings.timeouts, key), seconds) for key in ("connect", "initialize", "list")}
    timeouts = settings.timeouts.model_copy(update=least)
    upstreams = Upstreams(specs, timeouts, settings.limits.message_bytes, account_file)
    names = [spec.name for spec in settings.upstream_specs()]
    keys = {name: "upstream" if settings.upstream else f"mcpServers.{name}" for name in names}
    tools = ToolsFindings(
        JsonSchemaValidator(),
        naming=settings.naming,
        filtering=settings.filtering,
        client=subject.client,
        entry=subject.entry,
        is_alone=bool(settings.lone_server),
    )
    opening = partial(upstreams.opened, lambda _upstream, _tool: None)
    known = support_by_key(subject.client)
    return ServersCheck(opening, visitor, tools, timeouts=settings.timeouts, keys=keys, client=known)


def _contradictions(settings: Settings) -> list[str]:
    both = settings.filtering.contradictions
    return (
        [f"filtering: both lists name {', '.join(both)}, which is denied then — fix: keep one of them"] if both else []
    )


def _common_checks(
    settings: Settings,
    rules: Mapping[str, FilteringSettings],
    on_change: Mapping[str, OnChange],
    load_embedder: "Callable[[EmbedderSettings], EmbedderCheckResult]",
) -> list[Check]:
    """The checks of what all configurations have in common."""
    embedder = EmbedderCheck(lambda: load_embedder(settings.embedder), is_used=intercepts_lists(settings))
    checks: list[Check] = [embedder, PortsCheck(PortInspector(_serving()), _places(settings))]
    if settings.storage.kind == "memory":
        what = "the store is in memory: nothing that is recorded outlives its process"
        return [*checks, StaticCheck(finding(DoctorSection.STORE, Severity.NOTE, "storage.kind", what))]
    store = SharedProbe(lambda: _look(settings))
    return [
        *checks,
        _store_check(settings, store),
        ClientsSeenCheck(store, settings.filtering, rules),
        KnowledgeCheck(settings.knowledge, store),
        ChangedToolsCheck(store, on_change),
    ]


def _look(settings: Settings) -> StoreStatus:
    from riglm.adapters.analytics.inspection import StoreInspector

    return StoreInspector(store_url(settings), timeout=settings.storage.timeout).look()


def _store_check(settings: Settings, store: SharedProbe[StoreStatus]) -> Check:
    from riglm.adapters.control.tokens import FILE_NAME as TOKENS
    from riglm.composition.accounts import FILE_NAME as ACCOUNTS

    def spools() -> list[SpoolStatus]:
        from riglm.adapters.spool.sqlite import survey

        return [
            SpoolStatus(
                place=str(each.path),
                records=each.records,
                damaged=each.damaged,
                is_newer=each.is_newer,
                is_held=each.is_held,
            )
            for each in survey(*spool_paths(settings))
        ]

    file, data = store_path(settings), data_directory(os.environ)
    private = [data / TOKENS, data / ACCOUNTS, file.parent / "riglm.key"]
    if settings.storage.kind == "sqlite":
        private.append(file)
    return StoreCheck(store, spools, FileInspector(), directory=file.parent, private=private)


def _places(settings: Settings) -> list[ListenAddress]:
    downstream, control = settings.downstream, settings.control
    places = [ListenAddress("downstream", downstream.host, downstream.port, "riglm serve", is_needed=False)]
    if control.enabled:
        places.append(ListenAddress("control", control.host, control.port, "the control API", is_needed=True))
    return places


def _serving() -> str:
    """What a running `riglm serve` wrote down of itself; nothing is locked to see whether it still runs."""
    from riglm.adapters.spool.file_lock import LOCK

    try:
        return (data_directory(os.environ) / LOCK).read_text("utf-8", "replace")
    except OSError:
        return ""


def _machine() -> Check:
    major, minor, micro = sys.version_info[:3]
    return MachineCheck(riglm=_version(), program=sys.argv[0], python=(major, minor, micro), platform=sys.platform)


def _version() -> str:
    return str(server_info()["version"])


def _secrets(known: Iterable[Settings]) -> tuple[str, ...]:
    """What no finding may show: a server may quote what it was given, by riglm or by the environment."""
    of_environment = [value for name, value in os.environ.items() if sounds_secret(name) and holds_secret(name, value)]
    return (*(secret for settings in known for secret in secrets_to_hide(settings)), *of_environment)
