"""Work that was done before riglm came: sessions of a dozen workflows, whose popularity changes with the weeks."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

Tool = dict[str, Any]

_OBJECTS: Final = {
    "github": "issue pull_request branch release commit",
    "linear": "ticket cycle project label roadmap",
    "slack": "message channel thread reminder huddle",
    "postgres": "table query index migration schema",
    "sentry": "event alert trace dashboard replay",
    "figma": "frame component comment style prototype",
    "stripe": "invoice customer refund subscription payout",
    "notion": "page database block template workspace",
}
_VERBS: Final = {
    "list": "List {o}s in {s}, newest first, a page at a time.",
    "get": "Fetch one {o} of {s} by its identifier, with all its fields.",
    "write": "Create or change a {o} in {s}; only the fields given are changed.",
}
_TOLD: Final = (
    ("triage what came in over night", "sort the new reports of last night", "go through what users filed overnight"),
    ("get version {n} out of the door", "prepare the launch of {n}", "we ship {n} today, make it ready"),
    (
        "why is checkout slow since Tuesday",
        "checkout latency went up, find out why",
        "the cart page crawls, investigate",
    ),
    (
        "refund the customers of the outage",
        "pay people back for the downtime",
        "money back for all hit by the incident",
    ),
    (
        "write the minutes of the design review",
        "notes from the review of the designs",
        "sum up what the designers said",
    ),
    ("onboard our new colleague {n}", "{n} starts on Monday, set everything up", "make the accounts of newcomer {n}"),
    ("close the books of the month", "month end closing, please", "reconcile the accounts for {n}"),
    ("clean up old feature flags", "remove switches nobody uses", "flags from {n} are stale, delete them"),
    ("the nightly import of partner data broke", "partner feed failed, repair it", "repair the broken {n} import job"),
    ("draft the newsletter about {n}", "a mail to all readers on {n}", "compose this month's news for subscribers"),
    ("plan the next sprint", "what do we take into sprint {n}", "fill the coming iteration with work"),
    ("answer the auditors' questions", "the audit needs evidence about {n}", "collect proofs for the yearly audit"),
)
"""How people ask for each workflow; the last way is heard only where it is measured."""

_SUBJECTS: Final = ("atlas", "borealis", "cobalt", "dahlia", "ember", "fjord", "garnet", "harbour", "indigo", "juniper")
_OPENINGS: Final = ("", "Please ", "Could you ", "Next: ", "As discussed, ", "Hi, ", "Quick one: ")
_NOISE: Final = 0.08
_SKIPPED: Final = 0.12
_REPEATED: Final = 0.25
_JOINED: Final = 0.15


def servers() -> dict[str, list[Tool]]:
    """Eight servers with fifteen tools each, as they list them."""
    return {
        server: [
            {
                "name": f"{verb}_{thing}",
                "description": said.format(o=thing.replace("_", " "), s=server),
                "inputSchema": {
                    "type": "object",
                    "properties": {"text": {"type": "string", "description": f"What to {verb}, in plain words"}},
                },
            }
            for thing in things.split()
            for verb, said in _VERBS.items()
        ]
        for server, things in _OBJECTS.items()
    }


@dataclass(frozen=True, slots=True)
class Work:
    """What somebody asked for, and the tools that it took, as (server, tool), in order."""

    prompt: str
    calls: tuple[tuple[str, str], ...]

    @property
    def tools(self) -> frozenset[str]:
        """The tools as riglm names them."""
        return frozenset(f"{server}__{tool}" for server, tool in self.calls)


class Person:
    """Somebody with a dozen workflows of 4 to 8 tools, some of them habits that come along in most.

    Which tools a workflow takes is drawn by lot among one to three servers, so that no description can suggest it. A
    few workflows make up most of the work, and which these are changes slowly.
    """

    def __init__(self, seed: int) -> None:
        self._lot = lot = random.Random(seed)
        self._all = [(server, str(tool["name"])) for server, tools in servers().items() for tool in tools]
        favourites = lot.sample(sorted(_OBJECTS), 4)
        own = lot.sample([tool for tool in self._all if tool[0] in favourites], 26)
        self._habits = own[:4]
        self._workflows = [self._workflow(own[4:]) for _ in _TOLD]
        self._early, self._late = (lot.sample(range(len(_TOLD)), len(_TOLD)) for _ in range(2))

    def before(self, sessions: int) -> list[Work]:
        """The sessions of the past, oldest first."""
        return [self._session(number / sessions, held_out=False) for number in range(sessions)]

    def after(self, sessions: int) -> list[Work]:
        """Sessions that come after them, asked for in words that were not heard before."""
        return [self._session(1.0, held_out=True) for _ in range(sessions)]

    def _workflow(self, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        lot = self._lot
        near = lot.sample(sorted({server for server, _ in own}), lot.randint(1, 3))
        there = [tool for tool in own if tool[0] in near]
        mine = lot.sample(there, min(len(there), lot.randint(3, 6)))
        habits = [tool for tool in self._habits if lot.random() < 0.6]
        return lot.sample([*mine, *habits], len(mine) + len(habits))

    def _session(self, progress: float, *, held_out: bool) -> Work:
        lot = self._lot
        number = self._drawn(progress)
        steps = list(self._workflows[number])
        if lot.random() < _JOINED:
            steps += self._workflows[self._drawn(progress)]
        calls: list[tuple[str, str]] = []
        for step in steps:
            if lot.random() < _SKIPPED:
                continue
            calls.append(step)
            if lot.random() < _REPEATED:
                calls.append(step)
            if lot.random() < _NOISE:
                calls.append(lot.choice(self._all))
        told = _TOLD[number]
        said = (told[-1] if held_out else lot.choice(told[:-1])).format(n=lot.choice(_SUBJECTS))
        return Work(lot.choice(_OPENINGS) + said, tuple(calls or steps[:1]))

    def _drawn(self, progress: float) -> int:
        """A workflow: early ones are drawn from one order of popularity, late ones from another."""
        order = self._late if self._lot.random() < progress else self._early
        return self._lot.choices(order, [1 / (place + 1) ** 1.5 for place in range(len(order))])[0]
