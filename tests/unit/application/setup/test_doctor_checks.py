import time
from collections.abc import Iterable

from riglm.application.setup.doctor_checks import Check, in_thread, run_checks
from riglm.domain.doctor import DoctorSection, Finding, Severity

GOOD = Finding(DoctorSection.MACHINE, Severity.OK, "here", "all is well")


def fail() -> Iterable[Finding]:
    raise LookupError("gone")


GOING = Check((DoctorSection.MACHINE,), in_thread(lambda: [GOOD]))
FAILING = Check((DoctorSection.STORE,), in_thread(fail))
ENDLESS = Check((DoctorSection.PORTS,), in_thread(lambda: time.sleep(60) or []))  # type: ignore[func-returns-value]


async def test_a_check_that_fails_or_never_ends_does_not_stop_the_others():
    found = await run_checks([FAILING, ENDLESS, GOING], seconds=0.2)
    assert [(each.section, each.severity) for each in found] == [
        (DoctorSection.STORE, Severity.ERROR),
        (DoctorSection.PORTS, Severity.ERROR),
        (DoctorSection.MACHINE, Severity.OK),
    ]
    assert "LookupError: gone" in found[0].what
    assert "within 0.2 s" in found[1].what
