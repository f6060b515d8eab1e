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
from riglm.adapters.examining import FilesLook, JsonSchemaJudge, Overhearing, PortsLook, Programs
from riglm.application.examining.check import Check, Labelled, Once, Told
from riglm.application.examining.clients import ClientFilesCheck, ClientsSeenCheck
from riglm.application.examining.configuration import (
    ConfigurationCheck,
    EmbedderCheck,
    KnowledgeCheck,
    MachineCheck,
    Place,
    PortsCheck,
    UnusableConfiguration,
    certain_secrets,
)
from riglm.application.examining.servers import Missing, ServersCheck, UnvisitedCheck, Visitor
from riglm.application.examining.store import StoreCheck
from riglm.application.examining.tools import ToolsFindings
from riglm.application.identity import server_info
from riglm.composition.installing import installations, riglm_entries
from riglm.composition.prediction import build_predictor
from riglm.composition.storage import spool_path, stands_in_the_way, store_path, store_url
from riglm.domain.client_support import support_by_key
from riglm.domain.errors import ConfigurationError
from riglm.domain.finding import Section, Severity, finding
from riglm.domain.installation import ENTRY, Installation
from riglm.domain.schemas.filtering import Filtering
from riglm.domain.schemas.settings import Settings
from riglm.domain.secret import sounds_secret
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.examining import EmbedderFacts, SpoolLeft, StoreFacts

if TYPE_CHECKING:
    from riglm.domain.schemas.section import Embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One configuration that is examined.

    `problems` say why it cannot be used; `configuration` is then what can be told of it without its servers, if
    anything can. `label` is empty where there is only one; `client` is the one that riglm serves by it, if it is one,
    `entry` what it calls riglm, and `project` the directory in which it starts it, if it is that of a project.
    """

    label: str
    configuration: Configuration | None
    problems: str = ""
    client: str = ""
    entry: str = ENTRY
    project: Path | None = None

    def specs(self) -> list[UpstreamSpec]:
        """The servers as the client has them started: paths that are not whole begin in its project."""
        found = self.configuration.settings.upstream_specs() if self.configuration is not None else []
        return [started_in(self.project, each) for each in found]

    def missing(self) -> Mapping[str, Missing]:
        """By name, the servers that cannot be started because something is not there."""
        found = {}
        for spec in self.specs():
            for problem in missing_parts(spec, self.configuration, os.environ) if self.configuration else ():
                is_program = problem.path.endswith(".command") and " " not in spec.command[0]
                found[spec.name] = Missing(spec, problem.what, problem.fix, is_program)
        return found


def in_use(options: Options, installed: Sequence[Installation]) -> list[tuple[Options, Installation | None]]:
    """The configuration in use, or where none is named or found, those that clients start riglm with.

    With each is what `riglm init` did when it made it.
    """
    is_named = options.config is not None or options.mcp_json is not None or Path(FILE_NAME).is_file()
    files = {each.configuration: each for each in installed if each.configuration.is_file()}
    if is_named or not files:
        return [(options, files.get(options.config.absolute()) if options.config is not None else None)]
    return [(Options(config=file), each) for file, each in files.items()]


def subjects_of(options: Options, installed: Sequence[Installation]) -> list[Subject]:
    """What is examined of the configurations in use."""
    found = in_use(options, installed)
    labels = [each.config.stem if each.config and len(found) > 1 else "" for each, _ in found]  # a client may have many
    return [_subject(*each, label) for each, label in zip(found, labels, strict=True)]


def _subject(options: Options, served: Installation | None, label: str = "") -> Subject:
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
    )


def _without_servers(options: Options) -> Configuration | None:
    try:
        return load(Options(config=options.config, with_servers=False))
    except ConfigurationError:
        return None


def _problems(configuration: Configuration) -> list[str]:
    """All that keeps riglm from starting so, but what is missing of single servers."""
    from riglm.adapters.embedding import building
    from riglm.adapters.embedding.building import require_known_model
    from riglm.adapters.prediction import selection

    settings = configuration.settings

    def predictor() -> None:
        require_predictor(configuration, selection.available)
        build_predictor(settings)

    def embedder() -> None:
        require_embedder(configuration, building.available)
        require_known_model(settings.embedder)

    found: dict[str, None] = {}
    for require in (predictor, embedder):
        try:
            require()
        except ConfigurationError as error:
            found |= dict.fromkeys(str(error).splitlines())
    return list(found)


_LEAST_SECONDS: Final = 30.0
_VISITS: Final = 4  # the visit itself, the other era, the end of the process, and others before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The checks, each for at most `seconds`, and the `secrets` that no finding may show.

    `is_usable` says whether all configurations can be used.
    """

    checks: Sequence[Check]
    overhearing: Overhearing
    seconds: float
    secrets: tuple[str, ...]
    is_usable: bool


def examination(
    options: Options, load_embedder: "Callable[[Embedder], EmbedderFacts]", *, visits: bool, seconds: float
) -> Examination:
    """What is to be examined; with `visits` servers are started, each for at most so many seconds."""
    installed = installations()
    subjects = subjects_of(options, installed)
    overhearing = Overhearing()
    visitor = Visitor(overhearing, seconds) if visits else None
    checks: list[Check] = []
    for subject in subjects:
        own = _own_checks(subject, visitor, seconds)
        checks += [Labelled(check, subject.label) for check in own] if subject.label else own
    known = [subject.configuration for subject in subjects if subject.configuration is not None]
    if known:
        rules = {each.client: each.configuration.settings.filtering for each in subjects if each.configuration}
        checks += _common_checks(known[0].settings, rules, load_embedder)
    files_check = ClientFilesCheck(riglm_entries, installed, FilesLook(), Programs(), version=_version())
    checks += [files_check, _machine()]
    return Examination(
        checks=checks,
        overhearing=overhearing,
        seconds=_VISITS * seconds + _LEAST_SECONDS,
        secrets=_secrets(configuration.settings for configuration in known),
        is_usable=not any(subject.problems for subject in subjects),
    )


def _own_checks(subject: Subject, visitor: Visitor | None, seconds: float) -> list[Check]:
    """The checks of one configuration and its servers."""
    configuration = subject.configuration
    checks: list[Check] = [UnusableConfiguration(subject.problems)] if subject.problems else []
    if configuration is None:
        what = "servers, store, model and ports were not looked at: nobody knows what they are"
        return [*checks, Told(finding(Section.CONFIGURATION, Severity.NOTE, "the rest", what))]
    settings = configuration.settings
    specs = subject.specs()
    if not subject.problems:
        notes = [*configuration.warnings, *_contradictions(settings)]
        names = [spec.name for spec in specs]
        files = FilesLook()
        checks.append(ConfigurationCheck(configuration.file, names, notes, files, certain_secrets(settings)))
    missing = subject.missing()
    there = [spec for spec in specs if spec.name not in missing]
    checks.append(UnvisitedCheck(list(missing.values()), [] if visitor else there))
    if visitor is not None and there:
        checks.append(_visits(settings, there, visitor, subject, seconds))
    return checks


def _visits(
    settings: Settings, specs: Sequence[UpstreamSpec], visitor: Visitor, subject: Subject, seconds: float
) -> Check:
    from riglm.adapters.mcp.upstream.building import Upstreams

    least = {key: min(getattr(settings.timeouts, key), seconds) for key in ("connect", "initialize", "list")}
    timeouts = settings.timeouts.model_copy(update=least)
    upstreams = Upstreams(specs, timeouts, settings.limits.message_bytes)
    names = [spec.name for spec in settings.upstream_specs()]
    keys = {name: "upstream" if settings.upstream else f"mcpServers.{name}" for name in names}
    tools = ToolsFindings(
        JsonSchemaJudge(),
        naming=settings.naming,
        filtering=settings.filtering,
        client=subject.client,
        entry=subject.entry,
        is_alone=len(keys) == 1,
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
    settings: Settings, rules: Mapping[str, Filtering], load_embedder: "Callable[[Embedder], EmbedderFacts]"
) -> list[Check]:
    """The checks of what all configurations have in common."""
    embedder = EmbedderCheck(lambda: load_embedder(settings.embedder), is_used=stands_in_the_way(settings))
    checks: list[Check] = [embedder, PortsCheck(PortsLook(_serving()), _places(settings))]
    if settings.storage.kind == "memory":
        what = "the store is in memory: nothing that is recorded outlives its process"
        return [*checks, Told(finding(Section.STORE, Severity.NOTE, "storage.kind", what))]
    store = Once(lambda: _look(settings))
    return [
        *checks,
        _store_check(settings, store),
        ClientsSeenCheck(store, settings.filtering, rules),
        KnowledgeCheck(settings.knowledge, store),
    ]


def _look(settings: Settings) -> StoreFacts:
    from riglm.adapters.analytics.looking import StoreLook

    return StoreLook(store_url(settings), timeout=settings.storage.timeout).look()


def _store_check(settings: Settings, store: Once[StoreFacts]) -> Check:
    from riglm.adapters.control.tokens import FILE_NAME as TOKENS

    def spools() -> list[SpoolLeft]:
        from riglm.adapters.spool.sqlite import survey

        return [
            SpoolLeft(
                place=str(each.path),
                records=each.records,
                damaged=each.damaged,
                is_newer=each.is_newer,
                is_held=each.is_held,
            )
            for each in survey(spool_path(settings))
        ]

    file, data = store_path(settings), data_directory(os.environ)
    private = [data / TOKENS, file.parent / "riglm.key"]
    if settings.storage.kind == "sqlite":
        private.append(file)
    return StoreCheck(store, spools, FilesLook(), directory=file.parent, private=private)


def _places(settings: Settings) -> list[Place]:
    downstream, control = settings.downstream, settings.control
    places = [Place("downstream", downstream.host, downstream.port, "riglm serve", is_needed=False)]
    if control.enabled:
        places.append(Place("control", control.host, control.port, "the control API", is_needed=True))
    return places


def _serving() -> str:
    """What a running `riglm serve` wrote down of itself; nothing is locked to see whether it still runs."""
    from riglm.adapters.spool.place import LOCK

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
    of_environment = [value for name, value in os.environ.items() if sounds_secret(name)]
    return (*(secret for settings in known for secret in settings.secrets()), *of_environment)
