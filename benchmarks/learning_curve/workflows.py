"""Work that repeats: what it is said to be about, and the tools that it takes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.load import catalogue

TOOLS: Final = 160
NOISE: Final = 0.1
"""So many of the calls are of any other tool."""

_TOLD: Final = (
    ("prepare the monthly zebra review", "get the zebra review of this month ready", "this month's zebra review"),
    ("the auditors visit us on Thursday", "make everything ready for the auditors", "auditors are coming, prepare it"),
    ("welcome Ines, who starts on Monday", "a new colleague begins next week", "onboard the colleague who starts soon"),
    ("close the books of the quarter", "quarter's end: do the closing", "finish the closing of this quarter"),
    ("move the north office to the new building", "the north office moves house", "the move of the north office"),
    ("a parcel was lost, calm the customer down", "customer angry: parcel missing", "somebody's parcel never came"),
)
"""Three ways to speak of each workflow; the last is heard only where it is measured."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call that has to be made; `other` says that it is no part of the workflow."""

    tool: str
    need: str
    """What the caller would search for: what the tool says of itself."""
    other: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What one session is about, and its calls in order."""

    context: str
    steps: tuple[Step, ...]


class Workflows:
    """Workflows of 6 to 12 calls over tools that were drawn by lot: no description can suggest them."""

    def __init__(self, seed: int = 11) -> None:
        lot = random.Random(seed)
        self._needs = {str(tool["name"]): str(tool["description"]) for tool in catalogue.make(TOOLS)}
        self._tools = [lot.sample(sorted(self._needs), lot.randint(6, 12)) for _ in _TOLD]

    def taught(self, sessions: int, seed: int = 1) -> Iterator[Work]:
        """Sessions of any workflow each, told in any of the ways but the last."""
        lot = random.Random(seed)
        for _ in range(sessions):
            number = lot.randrange(len(_TOLD))
            yield self._work(number, lot.choice(_TOLD[number][:-1]), lot)

    def measured(self, rounds: int, seed: int = 2) -> Iterator[Work]:
        """Every workflow so many times, told in the last way."""
        lot = random.Random(seed)
        for _ in range(rounds):
            yield from (self._work(number, told[-1], lot) for number, told in enumerate(_TOLD))

    def _work(self, number: int, context: str, lot: random.Random) -> Work:
        steps = []
        for tool in self._tools[number]:
            if lot.random() < NOISE:
                any_other = lot.choice([name for name in self._needs if name not in self._tools[number]])
                steps.append(Step(any_other, self._needs[any_other], other=True))
            steps.append(Step(tool, self._needs[tool]))
        return Work(context, tuple(steps))
