"""Whether the configuration can be used, and who else may read what is secret in it."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from riglm.application.doctor.check import Check, SharedProbe, aside
from riglm.domain.errors import AnalyticsUnavailableError, RiglmError
from riglm.domain.finding import DoctorSection, Finding, Severity, finding
from riglm.domain.redaction import (
    begins_like_a_key,
    holds_secret,
    passwords_of_url,
    secrets_of_command,
    secrets_of_url,
    sounds_secret,
)
from riglm.domain.schemas.base import SecretMap
from riglm.domain.schemas.filtering import KnowledgeSettings
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.schemas.settings import Settings
from riglm.ports.doctor import EmbedderCheckResult, FileInspectorPort, PortInspectorPort, StoreStatus

_FIX: Final = " — fix: "
_finding: Final = partial(finding, DoctorSection.CONFIGURATION)


class InvalidConfigurationCheck(Check):
    """Reports all problems of an invalid configuration."""

    sections = (DoctorSection.CONFIGURATION,)

    def __init__(self, problems: str) -> None:
        """`problems` are lines, each with the place, what is wrong, and the fix."""
        self._problems = problems

    async def examine(self) -> Sequence[Finding]:
        return [told(line, Severity.ERROR) for line in self._problems.splitlines()]


class ConfigurationCheck(Check):
    """Reports on a valid configuration: its file, oddities, and whether its secrets are protected."""

    sections = (DoctorSection.CONFIGURATION,)

    def __init__(
        self,
        file: Path | None,
        servers: Sequence[str],
        notes: Sequence[str],
        files: FileInspectorPort,
        secrets: Sequence[str],
    ) -> None:
        """`file` is None without a file; `secrets` are keys that must not be in a file that others can read."""
        self._file = file
        self._servers = servers
        self._notes = notes
        self._files = files
        self._secrets = secrets

    async def examine(self) -> Sequence[Finding]:
        place = str(self._file) if self._file else "riglm.yaml"
        found = [_finding(*_in_use(place, self._servers, is_there=self._file is not None))]
        found += [told(note, Severity.WARNING) for note in self._notes]
        exposed = self._files.exposed(self._file) if self._file else None
        if exposed is not None and self._file is not None and self._holds_secrets(self._file):
            what = f"holds secrets, and other users of this machine may read it (mode {exposed.mode})"
            fix = f"chmod 600 {exposed.path}; better still, write ${{VARIABLE}} for each secret"
            found.append(_finding(Severity.WARNING, place, what, fix))
        return found

    def _holds_secrets(self, file: Path) -> bool:
        text = file.read_text("utf-8", "replace")
        return any(secret in text for secret in self._secrets)


def told(line: str, severity: Severity) -> Finding:
    """A problem as the configuration's readers word it: `PLACE: WHAT — fix: FIX`."""
    words, _, fix = line.partition(_FIX)
    place, colon, what = words.rpartition(": ")
    return _finding(severity, place, what, fix) if colon else _finding(severity, "riglm.yaml", words, fix)


def _in_use(place: str, servers: Sequence[str], *, is_there: bool) -> tuple[Severity, str, str, str]:
    what = "is in use" if is_there else "there is none: defaults and the environment are in use"
    if servers:
        return (Severity.OK if is_there else Severity.NOTE), place, f"{what}; servers: {', '.join(servers)}", ""
    fix = "run `riglm init`, or give another file with --config; no action is needed if clients name the server"
    return Severity.NOTE, place, f"{what}; it names no servers", fix


_MIN: Final = 8
"""Shorter values are considered numbers or switches, regardless of their names."""


def certain_secrets(settings: Settings) -> tuple[str, ...]:
    """Tokens, keys and passwords, and what servers are given under such names."""
    found = [*settings.own_secrets]
    for server in [*([settings.upstream] if settings.upstream else []), *settings.mcp_servers.values()]:
        found += _of_server(server)
    return tuple(secret for secret in found if len(secret) >= _MIN)


def secrets_to_hide(settings: Settings) -> Iterator[str]:
    """Return what no finding may show: tokens, keys and passwords, and values that look like them."""
    yield from settings.own_secrets
    yield from (value for value in settings.from_variables if holds_secret("", value))
    for server in [*([settings.upstream] if settings.upstream else []), *settings.mcp_servers.values()]:
        yield from (secret.get_secret_value() for secret in server.secrets())
        yield from secrets_of_url(server.url)
        yield from secrets_of_command(server.command + server.args)
        for name, secret in (*server.env.items(), *server.headers.items()):
            value = secret.get_secret_value()
            yield from [value] if holds_secret(name, value) else []
            yield from secrets_of_url(value) if "://" in value else []


def _of_server(server: ServerSettings) -> Iterator[str]:
    yield from (secret.get_secret_value() for secret in server.secrets())
    yield from _of_map(server.env)
    yield from _of_map(server.headers)
    yield from passwords_of_url(server.url)
    yield from _of_words(server.command + server.args)


def _of_words(words: Sequence[str]) -> Iterator[str]:
    for word, after in pairwise((*words, "")):
        option, equals, value = word.partition("=")
        if begins_like_a_key(word):
            yield word
        elif option.startswith("-") and sounds_secret(option):
            yield value if equals else after


def _of_map(given: SecretMap) -> Iterator[str]:
    for name, value in given.items():
        text = value.get_secret_value()
        if (sounds_secret(name) and holds_secret(name, text)) or begins_like_a_key(text):
            yield text


_listening_finding: Final = partial(finding, DoctorSection.PORTS)


class ListenAddress(NamedTuple):
    """A place to listen at: the section of the configuration that names it, the host and the port, and for what."""

    key: str
    host: str
    port: int
    purpose: str
    is_needed: bool


class PortsCheck(Check):
    """Looks who listens where riglm would."""

    sections = (DoctorSection.PORTS,)

    def __init__(self, ports: PortInspectorPort, places: Sequence[ListenAddress]) -> None:
        """All `places` are looked at; one that is not needed is worth no more than a note."""
        self._ports = ports
        self._places = places

    async def examine(self) -> Sequence[Finding]:
        return await aside(lambda: [self._at(place) for place in self._places])

    def _at(self, place: ListenAddress) -> Finding:
        name = f"{place.key} {place.host}:{place.port}"
        weight = Severity.WARNING if place.is_needed else Severity.NOTE
        fix = f"set {place.key}.port to a free port, or to 0 to let riglm choose"
        if not place.port:
            return _listening_finding(Severity.OK, name, f"{place.purpose} takes a free port at its start")
        try:
            other = self._ports.listener(place.host, place.port)
        except OSError as error:
            what = f"{place.purpose} cannot listen there: {error.strerror or error}"
            return _listening_finding(weight, name, what, f"correct {place.key}.host and {place.key}.port")
        if other is None:
            return _listening_finding(Severity.OK, name, f"free for {place.purpose}")
        if other.is_riglm:
            return _listening_finding(Severity.OK, name, f"{other.words} listens there")
        return _listening_finding(weight, name, f"taken by {other.words}: {place.purpose} cannot start", fix)


_MIN_PYTHON: Final = (3, 11)
_RELEASED: Final = 1_790_000_000.0
"""No clock that is right shows an earlier time: this riglm did not exist then."""
_machine_finding: Final = partial(finding, DoctorSection.MACHINE)


class MachineCheck(Check):
    """Reports the versions, and whether the clock is plausible."""

    sections = (DoctorSection.MACHINE,)

    def __init__(self, *, riglm: str, program: str, python: tuple[int, int, int], platform: str) -> None:
        """What runs: the version of riglm, the program that it was started as, and what is below it."""
        self._riglm = riglm
        self._program = program
        self._python = python
        self._platform = platform

    async def examine(self) -> Sequence[Finding]:
        python = ".".join(map(str, self._python))
        found = [_machine_finding(Severity.OK, "riglm", f"{self._riglm}, started as {self._program}")]
        if self._python[:2] < _MIN_PYTHON:
            found.append(
                _machine_finding(Severity.ERROR, "Python", f"{python} is too old", "install Python 3.11 or newer")
            )
        else:
            found.append(_machine_finding(Severity.OK, "Python", f"{python} on {self._platform}"))
        if time.time() < _RELEASED:
            what = "the clock is in the past: records would get times that are not theirs"
            found.append(
                _machine_finding(Severity.ERROR, "clock", what, "set it, for example with `timedatectl set-ntp true`")
            )
        return found


_embedder_finding: Final = partial(finding, DoctorSection.EMBEDDER)


class EmbedderCheck(Check):
    """Loads the model as `riglm run` does; no network is used."""

    sections = (DoctorSection.EMBEDDER,)

    def __init__(self, load: Callable[[], EmbedderCheckResult], *, is_used: bool) -> None:
        """`load` blocks until the model answered or is given up; without filtering and knowledge none is used."""
        self._load = load
        self._is_used = is_used

    async def examine(self) -> Sequence[Finding]:
        if not self._is_used:
            return [_embedder_finding(Severity.NOTE, "model", "none is used: filtering and knowledge are both off")]
        try:
            facts = await aside(self._load)
        except RiglmError as error:
            words, _, fix = str(error).partition(" — fix: ")
            return [_embedder_finding(Severity.ERROR, "model", words, fix or "correct embedder.model")]
        speed = f"loaded in {facts.load_ms:.0f} ms, one text takes {facts.embed_ms:.1f} ms"
        if not facts.is_fallback and not facts.reason:
            return [_embedder_finding(Severity.OK, "model", f"{facts.at_work} {speed}")]
        quality = "" if facts.is_semantic else ", which knows words and no meaning"
        why = facts.reason.partition(" — fix: ")[0] or "no reason given"
        what = f"{facts.wanted} cannot be used ({why}): {facts.at_work} replaces it{quality}"
        fix = f"riglm embedder pull {facts.wanted}, or correct embedder.model"
        return [_embedder_finding(Severity.WARNING, "model", what, fix)]


_knowledge_finding: Final = partial(finding, DoctorSection.KNOWLEDGE)


class KnowledgeCheck(Check):
    """Looks what the knowledge store holds."""

    sections = (DoctorSection.KNOWLEDGE,)

    def __init__(self, settings: KnowledgeSettings, store: SharedProbe[StoreStatus]) -> None:
        """The store of the records holds the knowledge as well."""
        self._settings = settings
        self._store = store

    async def examine(self) -> Sequence[Finding]:
        if not self._settings.enabled:
            return [_knowledge_finding(Severity.OK, "inner_voice.retrieve", "is disabled, as it is by default")]
        try:
            kept = (await self._store.facts()).knowledge
        except AnalyticsUnavailableError:
            return [
                _knowledge_finding(
                    Severity.ERROR, "inner_voice.retrieve", "the store cannot be read", "see under store"
                )
            ]
        if kept is None or not kept.pieces:
            what = "is on, and there is nothing that it could find"
            return [_knowledge_finding(Severity.WARNING, "inner_voice.retrieve", what, "riglm knowledge import FILE")]
        found = [_knowledge_finding(Severity.OK, "inner_voice.retrieve", f"{kept.pieces:,} pieces of knowledge")]
        if kept.without_vector:
            what = f"{kept.without_vector:,} of {kept.pieces:,} pieces have no vector and are not found yet"
            found.append(_knowledge_finding(Severity.WARNING, "vectors", what, "riglm knowledge embed"))
        return found
