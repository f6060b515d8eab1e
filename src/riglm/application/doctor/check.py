"""Checks, and how they are run: one that fails does not stop the others."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, Generic, Protocol, TypeVar

from riglm.domain.finding import DoctorSection, Finding, Severity

_Answer = TypeVar("_Answer")
_log: Final = logging.getLogger("riglm.doctor")


class Check(Protocol):
    """Looks at one part of an installation."""

    sections: tuple[DoctorSection, ...]
    """The sections of its findings; if the check itself fails, the first one reports that."""

    async def examine(self) -> Sequence[Finding]:
        """What it finds. What cannot be looked at is a finding as well, and no exception."""


class StaticCheck(Check):
    """What is known without looking."""

    def __init__(self, told: Finding) -> None:
        """The one finding."""
        self.sections = (told.section,)
        self._told = told

    async def examine(self) -> Sequence[Finding]:
        return [self._told]


async def run(
    checks: Sequence[Check],
    *,
    only: Collection[DoctorSection] = tuple(DoctorSection),
    seconds: float,
    on_done: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Run all checks concurrently, with a timeout in seconds for each; returns the findings in the order of sections.

    With `only`, checks of other sections do not run. `on_done` is called with each check that has ended.
    """
    wanted = [check for check in checks if not set(only).isdisjoint(check.sections)]
    told = await asyncio.gather(*(_guarded(check, seconds, on_done) for check in wanted))
    order = list(DoctorSection)
    found = [finding for findings in told for finding in findings if finding.section in only]
    return sorted(_merged(found), key=lambda finding: order.index(finding.section))


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Merge findings about several configurations that differ only in their labels."""
    merged: dict[tuple[object, ...], Finding] = {}
    for each in findings:
        label, colon, place = each.place.rpartition(": ")
        key = (each.section, each.severity, place, each.what, each.fix)
        first = merged.setdefault(key, each)
        if first is not each and colon:
            merged[key] = replace(first, place=f"{first.place.rpartition(': ')[0]}, {label}: {place}")
    return list(merged.values())


async def _guarded(check: Check, seconds: float, on_done: Callable[[], None]) -> Sequence[Finding]:
    place = type(check).__name__
    try:
        async with asyncio.timeout(seconds):
            return await check.examine()
    except TimeoutError:
        words, fix = f"could not be looked at within {seconds:g} s", "give it longer with --deadline"
        return [Finding(section=check.sections[0], severity=Severity.ERROR, place=place, what=words, fix=fix)]
    except Exception as error:  # noqa: BLE001  # the other checks continue
        _log.debug("a check failed", exc_info=True)
        words, fix = f"could not be looked at: {type(error).__name__}: {error}", "report this as an error of riglm"
        return [Finding(section=check.sections[0], severity=Severity.ERROR, place=place, what=words, fix=fix)]
    finally:
        on_done()


async def aside(call: Callable[[], _Answer]) -> _Answer:
    """Return the result of a blocking call that runs in a daemon thread, which is abandoned on timeout."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Answer] = loop.create_future()

    def settle(put: Callable[[], None]) -> None:
        if not answer.done():
            put()

    def notify(put: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, put)

    def work() -> None:
        try:
            got = call()
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            problem = error
            notify(lambda: answer.set_exception(problem))
        else:
            notify(lambda: answer.set_result(got))

    threading.Thread(target=work, name="riglm-examining", daemon=True).start()
    return await answer


_Facts = TypeVar("_Facts")


class SharedProbe(Generic[_Facts]):
    """Runs a probe once, at the first request, and returns its result or its exception to all."""

    def __init__(self, look: Callable[[], _Facts]) -> None:
        """`look` blocks; it has not been called yet."""
        self._look = look
        self._looking: asyncio.Task[_Facts] | None = None

    async def facts(self) -> _Facts:
        """What was found; raises what the look raised."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(aside(self._look))
        return await asyncio.shield(self._looking)


class Labelled(Check):
    """Puts a label before the place of all that another check finds."""

    def __init__(self, check: Check, label: str) -> None:
        """`label` says which configuration it is about."""
        self.sections = check.sections
        self._check = check
        self._label = label

    async def examine(self) -> Sequence[Finding]:
        return [replace(each, place=f"{self._label}: {each.place}") for each in await self._check.examine()]
