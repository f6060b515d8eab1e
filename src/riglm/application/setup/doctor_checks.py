"""How the checks of `riglm doctor` are run, and those of the configuration, the ports, the machine and the embedder."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from riglm.application.worker import run_in_daemon_thread
from riglm.domain import redaction
from riglm.domain.doctor import DoctorSection, Finding, Severity
from riglm.domain.errors import RiglmError
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.schemas.settings import Settings

_log: Final = logging.getLogger("riglm.doctor")

Look = Callable[[], Awaitable[Iterable[Finding]]]
"""Looks at one part of an installation. What cannot be looked at is a finding as well."""


class Check(NamedTuple):
    """A look, and the sections of its findings; if it fails, the first one reports that.

    `label` is the configuration that it is about if there are several; it begins the place of each finding.
    """

    sections: tuple[DoctorSection, ...]
    look: Look
    label: str = ""


def in_thread(look: Callable[[], Iterable[Finding]]) -> Look:
    """Return a look that runs a blocking one in a daemon thread, which is abandoned on timeout."""
    return lambda: run_in_daemon_thread("riglm-examining", lambda: list(look()))


async def run_checks(
    checks: Sequence[Check],
    *,
    only: Collection[DoctorSection] = tuple(DoctorSection),
    seconds: float,
    on_done: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Run all checks concurrently, with a timeout in seconds for each; return the findings in the order of sections.

    With `only`, checks of other sections do not run. `on_done` is called with each check that has ended.
    """
    wanted = [check for check in checks if not set(only).isdisjoint(check.sections)]
    results = await asyncio.gather(*(_run_check(check, seconds, on_done) for check in wanted))
    order = list(DoctorSection)
    found = [finding for findings in results for finding in findings if finding.section in only]
    return sorted(_merge_labels(found), key=lambda finding: order.index(finding.section))


async def _run_check(check: Check, seconds: float, on_done: Callable[[], None]) -> list[Finding]:
    section = check.sections[0]
    try:
        async with asyncio.timeout(seconds):
            found = await check.look()
        return [replace(each, place=f"{check.label}: {each.place}") if check.label else each for each in found]
    except TimeoutError:
        what, fix = f"could not be looked at within {seconds:g} s", "give it longer with --deadline"
    except Exception as error:  # noqa: BLE001  # the other checks continue
        _log.debug("a check failed", exc_info=True)
        what, fix = f"could not be looked at: {type(error).__name__}: {error}", "report this as an error of riglm"
    finally:
        on_done()
    return [Finding(section, Severity.ERROR, section.value, what, fix)]


def _merge_labels(findings: Sequence[Finding]) -> list[Finding]:
    """Merge findings about several configurations that differ only in their labels."""
    merged: dict[tuple[object, ...], Finding] = {}
    for each in findings:
        label, colon, place = each.place.rpartition(": ")
        key = (each.section, each.severity, place, each.what, each.fix)
        first = merged.setdefault(key, each)
        if first is not each and colon:
            merged[key] = replace(first, place=f"{first.place.rpartition(': ')[0]}, {label}: {place}")
    return list(merged.values())


_FIX: Final = " — fix: "
_MIN_SECRET_LENGTH: Final = 8
"""Shorter values are considered numbers or switches, regardless of their names."""

_finding: Final = partial(Finding, DoctorSection.CONFIGURATION)


def check_configuration(
    file: Path | None, settings: Settings, warnings: Sequence[str], shared_mode: str | None
) -> Iterator[Finding]:
    """Report on a valid configuration: its file, oddities, and whether its secrets are protected.

    `shared_mode` is the file's mode if other users of the machine may read it.
    """
    servers = [spec.name for spec in settings.upstream_specs()]
    place = str(file) if file else "riglm.yaml"
    what = "is in use" if file else "there is none: defaults and the environment are in use"
    if servers:
        yield _finding(Severity.OK if file else Severity.NOTE, place, f"{what}; servers: {', '.join(servers)}")
    else:
        fix = "run `riglm init`, or give another file with --config; no action is needed if clients name the server"
        yield _finding(Severity.NOTE, place, f"{what}; it names no servers", fix)
    yield from check_problems("\n".join(warnings), Severity.WARNING)
    if both := settings.filtering.contradictions:
        what = f"both lists name {', '.join(both)}, which is denied then"
        yield _finding(Severity.WARNING, "filtering", what, "keep one of them")
    if file is not None and shared_mode is not None:
        text = file.read_text("utf-8", "replace")
        if any(secret in text for secret in _certain_secrets(settings)):
            what = f"holds secrets, and other users of this machine may read it (mode {shared_mode})"
            fix = f"chmod 600 {file}; better still, write ${{VARIABLE}} for each secret"
            yield _finding(Severity.WARNING, place, what, fix)


def check_problems(problems: str, severity: Severity = Severity.ERROR) -> Iterator[Finding]:
    """Report problems as the configuration's readers word them, one in a line: `PLACE: WHAT — fix: FIX`."""
    for line in problems.splitlines():
        words, _, fix = line.partition(_FIX)
        place, colon, what = words.rpartition(": ")
        yield _finding(severity, place, what, fix) if colon else _finding(severity, "riglm.yaml", words, fix)


def _certain_secrets(settings: Settings) -> Iterator[str]:
    """Yield tokens, keys and passwords, and what servers are given under such names."""
    yield from (secret for secret in settings.own_secrets if len(secret) >= _MIN_SECRET_LENGTH)
    for server in _servers(settings):
        found = [secret.get_secret_value() for secret in server.secrets()]
        for name, given in (*server.env.items(), *server.headers.items()):
            text = given.get_secret_value()
            is_secret = redaction.sounds_secret(name) and redaction.holds_secret(name, text)
            if is_secret or redaction.begins_like_a_key(text):
                found.append(text)
        for word, after in pairwise((*server.command, *server.args, "")):
            option, equals, value = word.partition("=")
            if redaction.begins_like_a_key(word):
                found.append(word)
            elif option.startswith("-") and redaction.sounds_secret(option):
                found.append(value if equals else after)
        found += redaction.passwords_of_url(server.url)
        yield from (secret for secret in found if len(secret) >= _MIN_SECRET_LENGTH)


def secrets_to_hide(settings: Settings) -> Iterator[str]:
    """Yield what no finding may show: tokens, keys and passwords, and values that look like them."""
    yield from settings.own_secrets
    yield from (value for value in settings.from_variables if redaction.holds_secret("", value))
    for server in _servers(settings):
        yield from (secret.get_secret_value() for secret in server.secrets())
        yield from redaction.secrets_of_url(server.url)
        yield from redaction.secrets_of_command(server.command + server.args)
        for name, secret in (*server.env.items(), *server.headers.items()):
            value = secret.get_secret_value()
            yield from [value] if redaction.holds_secret(name, value) else []
            yield from redaction.secrets_of_url(value) if "://" in value else []


def _servers(settings: Settings) -> list[ServerSettings]:
    return [*([settings.upstream] if settings.upstream else []), *settings.mcp_servers.values()]


class ListenAddress(NamedTuple):
    """A place to listen at: the section of the configuration that names it, the host and the port, and for what."""

    key: str
    host: str
    port: int
    purpose: str
    is_needed: bool


_port_finding: Final = partial(Finding, DoctorSection.PORTS)


def check_ports(
    places: Sequence[ListenAddress], find_listener: Callable[[str, int], tuple[str, bool] | None]
) -> Iterator[Finding]:
    """Report which processes listen where riglm would.

    `find_listener` describes the process, with True for a riglm; it returns None if the port is free.
    """
    yield from (_check_port(place, find_listener) for place in places)


def _check_port(place: ListenAddress, find_listener: Callable[[str, int], tuple[str, bool] | None]) -> Finding:
    """Report which process listens at an address; one that is not needed is worth no more than a note."""
    name, purpose = f"{place.key} {place.host}:{place.port}", place.purpose
    severity = Severity.WARNING if place.is_needed else Severity.NOTE
    if not place.port:
        return _port_finding(Severity.OK, name, f"{purpose} takes a free port at its start")
    try:
        found = find_listener(place.host, place.port)
    except OSError as error:
        what = f"{purpose} cannot listen there: {error.strerror or error}"
        return _port_finding(severity, name, what, f"correct {place.key}.host and {place.key}.port")
    if found is None:
        return _port_finding(Severity.OK, name, f"free for {purpose}")
    listener, is_riglm = found
    if is_riglm:
        return _port_finding(Severity.OK, name, f"{listener} listens there")
    fix = f"set {place.key}.port to a free port, or to 0 to let riglm choose"
    return _port_finding(severity, name, f"taken by {listener}: {purpose} cannot start", fix)


_RELEASED: Final = 1_790_000_000.0
"""No clock that is right shows an earlier time: this riglm did not exist then."""

_machine_finding: Final = partial(Finding, DoctorSection.MACHINE)


def check_machine(riglm: str, program: str, python: str, platform: str) -> Iterator[Finding]:
    """Report the versions, and whether the clock is plausible."""
    yield _machine_finding(Severity.OK, "riglm", f"{riglm}, started as {program}")
    yield _machine_finding(Severity.OK, "Python", f"{python} on {platform}")
    if time.time() < _RELEASED:
        what = "the clock is in the past: records would get times that are not theirs"
        yield _machine_finding(Severity.ERROR, "clock", what, "set it, for example with `timedatectl set-ntp true`")


_embedder_finding: Final = partial(Finding, DoctorSection.EMBEDDER)


def check_embedder(wanted: str, load: Callable[[], Mapping[str, Any]] | None) -> Iterator[Finding]:
    """Load the model as `riglm run` does; no network is used.

    `load` blocks until the model answered or is given up; it is None if no model is used. Its result is that of `riglm
    embedder status --json`.
    """
    if load is None:
        yield _embedder_finding(Severity.NOTE, "model", "none is used: filtering and knowledge are both off")
        return
    try:
        facts = load()
    except RiglmError as error:
        words, _, fix = str(error).partition(_FIX)
        yield _embedder_finding(Severity.ERROR, "model", words, fix or "correct embedder.model")
        return
    loaded, embeddings, reason = facts["identity"], facts["embeddings"], facts["reason"] or ""
    is_fallback = embeddings["is_fallback_active"] and wanted != "static"
    if not is_fallback and not reason:
        speed = f"loaded in {facts['load_ms']:.0f} ms, one text takes {facts['embed_ms']:.1f} ms"
        yield _embedder_finding(Severity.OK, "model", f"{loaded} {speed}")
        return
    quality = "" if embeddings["semantic_quality"] == "high" else ", which knows words and no meaning"
    why = reason.partition(_FIX)[0] or "no reason given"
    what = f"{wanted} cannot be used ({why}): {loaded} replaces it{quality}"
    fix = f"riglm embedder pull {wanted}, or correct embedder.model"
    yield _embedder_finding(Severity.WARNING, "model", what, fix)
