"""What a run of the legs found, for people and for programs."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.conformance.comparison import Comparison, Known, Lost, Tally, known
from benchmarks.conformance.legs import Leg

PLAYED = {"server": "client", "client": "server", "auth": "server and issuer"}
NAMES = {"http": "upstream over HTTP", "stdio": "upstream on stdio"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One leg through riglm, compared with the direct one."""

    leg: Leg
    scenarios: list[Comparison]

    @property
    def direct(self) -> Tally:
        """All checks of the direct leg."""
        return sum((one.direct for one in self.scenarios), Tally(0, 0))

    @property
    def proxied(self) -> Tally:
        """All checks of the leg through riglm."""
        return sum((one.proxied for one in self.scenarios), Tally(0, 0))

    @property
    def kept(self) -> str:
        """Scenarios without a loss, of all."""
        return f"{sum(not one.lost for one in self.scenarios)}/{len(self.scenarios)}"

    def losses(self) -> Iterator[tuple[Lost, Known | None]]:
        """Every loss, with the entry of the baseline that explains it."""
        for scenario in self.scenarios:
            for loss in scenario.lost:
                yield loss, known(loss, self.leg.spec, self.leg.way)

    @property
    def unexplained(self) -> int:
        """How many losses the baseline does not know."""
        return sum(entry is None for _, entry in self.losses())


def as_json(outcomes: Iterable[Outcome], pins: dict[str, str]) -> dict[str, Any]:
    """All of it, scenario by scenario."""
    return {
        "pins": pins,
        "legs": [
            asdict(outcome.leg)
            | {
                "direct": asdict(outcome.direct),
                "through_riglm": asdict(outcome.proxied),
                "unexplained_losses": outcome.unexplained,
                "scenarios": [asdict(scenario) for scenario in outcome.scenarios],
            }
            for outcome in outcomes
        ],
    }


def show(outcomes: list[Outcome], console: Console, *, every_scenario: bool) -> None:
    """A table of the legs, then what was lost and why."""
    table = Table(title="Conformance: checks passed", title_justify="left")
    for column in ("the suite plays", "protocol", "riglm in between", "direct", "through riglm", "scenarios kept"):
        table.add_column(column)
    for outcome in outcomes:
        leg, other = outcome.leg, PLAYED[outcome.leg.role]
        counts = (str(outcome.direct), str(outcome.proxied), outcome.kept)
        table.add_row(other, leg.spec, NAMES[leg.way], *counts)
        if every_scenario:
            for one in outcome.scenarios:
                table.add_row("", "", f"  {one.scenario}", str(one.direct), str(one.proxied), "no" if one.lost else "")
    console.print(table)
    for outcome in outcomes:
        for loss, entry in outcome.losses():
            label = "[yellow]known[/]" if entry else "[red]LOST[/]"
            where = f"{outcome.leg.spec}, {NAMES[outcome.leg.way]}: {loss.scenario}, {loss.check}"
            console.print(f"{label} {where}: {escape(entry.reason if entry else loss.said[:400])}")
