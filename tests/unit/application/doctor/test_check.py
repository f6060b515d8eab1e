import asyncio
from collections.abc import Sequence

from riglm.application.doctor.check import Check, Labelled, SharedProbe, aside, run
from riglm.domain.finding import DoctorSection, Finding, Severity, finding

GOOD = finding(DoctorSection.MACHINE, Severity.OK, "here", "all is well")


class Good(Check):
    sections = (DoctorSection.MACHINE,)

    async def examine(self) -> Sequence[Finding]:
        return [GOOD]


class Raising(Check):
    sections = (DoctorSection.STORE,)

    async def examine(self) -> Sequence[Finding]:
        raise LookupError("gone")


class Endless(Check):
    sections = (DoctorSection.PORTS,)

    async def examine(self) -> Sequence[Finding]:
        return await aside(asyncio.run_coroutine_threadsafe(self._never(), asyncio.get_running_loop()).result)

    async def _never(self) -> Sequence[Finding]:
        return await asyncio.get_running_loop().create_future()


async def test_a_check_that_fails_or_never_ends_does_not_stop_the_others():
    told = await run([Raising(), Endless(), Good()], seconds=0.2)
    assert [(each.section, each.severity) for each in told] == [
        (DoctorSection.STORE, Severity.ERROR),
        (DoctorSection.PORTS, Severity.ERROR),
        (DoctorSection.MACHINE, Severity.OK),
    ]
    assert "LookupError: gone" in told[0].what
    assert "within 0.2 s" in told[1].what


async def test_checks_of_sections_that_nobody_asked_for_do_not_run():
    assert await run([Raising(), Good()], only=[DoctorSection.MACHINE], seconds=5) == [GOOD]


async def test_several_checks_go_by_one_look_even_if_it_fails():
    looks = []

    def look() -> None:
        looks.append(1)
        raise OSError("no")

    once = SharedProbe(look)
    answers = await asyncio.gather(once.facts(), once.facts(), return_exceptions=True)
    assert [type(answer) for answer in answers] == [OSError, OSError]
    assert len(looks) == 1


async def test_equal_findings_about_several_configurations_are_reported_once():
    both = [Labelled(Good(), "cursor"), Labelled(Good(), "zed"), Labelled(Raising(), "zed")]
    found = await run(both, seconds=5)
    assert [each.place for each in found if each.severity is Severity.OK] == [f"cursor, zed: {GOOD.place}"]
