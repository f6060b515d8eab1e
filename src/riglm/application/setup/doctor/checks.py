"""Checks of `riglm doctor`, and how they are run: one that fails does not stop the others."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Final, NamedTuple

from riglm.domain.doctor import DoctorSection, Finding, Severity

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

    def work(found: Future[list[Finding]]) -> None:
        with contextlib.suppress(InvalidStateError):  # it was abandoned
            try:
                found.set_result(list(look()))
            except BaseException as error:  # noqa: BLE001  # raised where it is awaited
                found.set_exception(error)

    async def examine() -> list[Finding]:
        found: Future[list[Finding]] = Future()
        threading.Thread(target=work, args=(found,), name="riglm-examining", daemon=True).start()
        return await asyncio.wrap_future(found)

    return examine


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
