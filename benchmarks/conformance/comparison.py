"""What of a direct run is lost through riglm, and what of that is known and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Checks = Mapping[str, Sequence[Mapping[str, Any]]]
"""The suite's checks by scenario."""

_WEIGHT = {"INFO": 0, "SKIPPED": 1, "SUCCESS": 2, "WARNING": 3, "FAILURE": 4}
_BAD = ("WARNING", "FAILURE")


@dataclass(frozen=True, slots=True)
class Tally:
    """How many checks passed, and how many did not; the suite may emit one check several times."""

    passed: int
    failed: int

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.passed + other.passed, self.failed + other.failed)

    def __str__(self) -> str:
        return f"{self.passed}/{self.passed + self.failed}"


@dataclass(frozen=True, slots=True)
class Lost:
    """A check that passes directly and not through riglm, with what the suite said."""

    scenario: str
    check: str
    said: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One scenario, directly and through riglm."""

    scenario: str
    direct: Tally
    proxied: Tally
    lost: tuple[Lost, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A loss that cannot be helped."""

    spec: str
    upstream: str
    check: str
    reason: str


BASELINE = (
    Known(
        spec="2025-11-25",
        upstream="stdio",
        check="server-sse-disconnect-resume",
        reason="the server ends its answer's stream early on purpose; on pipes there is no such stream to end",
    ),
)


def compare(direct: Checks, proxied: Checks) -> list[Comparison]:
    """Every scenario of the direct run beside the one through riglm."""
    return [_compared(name, checks, proxied.get(name, ())) for name, checks in direct.items()]


def known(loss: Lost, spec: str, upstream: str) -> Known | None:
    """The entry of the baseline that covers a loss."""
    for entry in BASELINE:
        if (entry.spec, entry.upstream, entry.check) == (spec, upstream, loss.check):
            return entry
    return None


def _compared(scenario: str, direct: Sequence[Mapping[str, Any]], proxied: Sequence[Mapping[str, Any]]) -> Comparison:
    before, after = _worst(direct), _worst(proxied)
    gone = [check for check, status in before.items() if status == "SUCCESS" and after.get(check) != "SUCCESS"]
    new = [check for check, status in after.items() if check not in before and status in _BAD]
    lost = tuple(Lost(scenario, check, _said(check, proxied)) for check in sorted(gone + new))
    return Comparison(scenario, _tally(direct), _tally(proxied), lost)


def _worst(checks: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    worst: dict[str, str] = {}
    for check in checks:
        name, status = check["id"], check["status"]
        if name not in worst or _WEIGHT.get(status, 0) > _WEIGHT.get(worst[name], 0):
            worst[name] = status
    return worst


def _tally(checks: Iterable[Mapping[str, Any]]) -> Tally:
    statuses = [check["status"] for check in checks]
    return Tally(statuses.count("SUCCESS"), sum(status in _BAD for status in statuses))


def _said(name: str, checks: Iterable[Mapping[str, Any]]) -> str:
    for check in checks:
        if check["id"] == name and check["status"] != "SUCCESS":
            return str(check.get("errorMessage") or check.get("description") or check["status"])
    return "the check did not run"
