"""What holds for every list, whatever a session does and whatever is predicted."""

import asyncio
import json
from uuid import uuid4

from hypothesis import example, given, settings
from hypothesis import strategies as st

from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.list_plan import Prices
from riglm.domain.policy import Override, OverrideKind
from riglm.domain.schemas.section import PriceSettings
from riglm.domain.session import ProtocolEra
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in

NAMES = tuple(f"tool{number:02}" for number in range(16))
CATALOGUES = (a_catalogue(*NAMES), a_catalogue(*NAMES[2:]), a_catalogue("new", *NAMES))
OWN = {"search_available_tools", "call_tool", "set_context", "mark_tool", "index_status"}

tools = st.sampled_from(NAMES)
likes = st.lists(tools, unique=True, min_size=1, max_size=6).map(tuple)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("context"), st.integers(0, 4), likes, st.floats(0, 1)),
        st.tuples(st.just("call"), tools, st.sampled_from(["", "k1", "k2", "k3"])),
        st.tuples(st.just("pause"), st.integers(1, 500)),
        st.tuples(st.just("learn"), st.dictionaries(tools, st.floats(0, 1), min_size=1, max_size=6)),
        st.tuples(st.just("search"), likes),
        st.tuples(st.just("catalogue"), st.integers(0, 2)),
        st.tuples(st.just("override"), st.sampled_from(OverrideKind), tools),
    ),
    min_size=4,
    max_size=25,
)
surroundings = st.fixed_dictionaries(
    {
        "denylist": st.sampled_from([(), ("tool03",), ("TOOL1*",)]),
        "pinned": st.sampled_from([(), ("tool0[12]",)]),
        "mode": st.sampled_from(["enforce", "enforce", "shadow"]),
        "max_tools": st.integers(1, 8),
        "prices": st.sampled_from([Prices(), PriceSettings(preset="uncached").prices()]),
        "surface": st.sampled_from(["dynamic", "dynamic", "auto", "stable", "hints", "full"]),
    }
)


class Life:
    """One session under watch: each of its lists and results is checked against those before."""

    def __init__(self, rules, era):
        self.stage = Stage(**rules)
        self.session = a_session("client", era)
        self.catalog = CATALOGUES[0]
        self.contexts = 0
        self.announced = 0
        self.before = None
        self.sent = []
        self.list()

    async def do(self, step):
        what, *given = step
        if what in ("context", "search"):
            await getattr(self, what)(*given)
        else:
            getattr(self, what)(*given)

    async def context(self, number, needs, confidence):
        self.stage.prediction.needs, self.stage.prediction.confidence = dict.fromkeys(needs, 0.9), confidence
        answer = await self.result("set_context", {"context": f"task {number}"})
        self.announced += answer.list_changed
        self.contexts += 1
        if answer.list_changed or self.stage.filtering.state(self.session).shown is None:
            self.before = None

    async def search(self, found):
        self.stage.prediction.finds(*found)
        await self.result("search_available_tools", {"query": "q"})

    async def result(self, tool, given):
        answer = await self.stage.meta_tools.run(self.session, tool, json.dumps(given).encode())
        content = json.loads(json.loads(answer.result)["content"][0]["text"])
        names = [each["name"] for each in [*content["tools"], *content.get("often_used_next", [])]]
        assert not [name for name in names if self.stage.filtering.denial(self.session, name)]
        self.sent += names
        return answer

    def call(self, tool, key):
        self.stage.calls(self.session, tool, found=DiscoveryMethod.NAMED, turn_key=key)

    def pause(self, seconds):
        self.stage.now += seconds

    def learn(self, uses):
        self.stage.prediction.next_uses = uses
        self.stage.learned(uses)
        if self.session.era is ProtocolEra.MODERN:
            self.before = None

    def catalogue_changed(self, number):
        self.catalog = CATALOGUES[number]
        self.before = None

    def override(self, kind, tool):
        one = Override(id=uuid4(), kind=kind, tool=tool, created_at=self.stage.now)
        self.stage.overrides = (*self.stage.overrides, one)
        self.before = None

    def list(self):
        listed = self.stage.filtering.compose(self.session, self.catalog)
        again = self.stage.filtering.compose(self.session, self.catalog)
        assert (again, again.raw) == (listed, listed.raw)
        names = names_in(listed.raw)
        self.nothing_denied_is_named([name for name in names if name not in OWN], listed)
        self.order_is_the_catalogues([name for name in names if name not in OWN])
        assert bool(OWN & set(names)) is bool(self.stage.filtering.offered(self.session))
        if listed.mode != "shadow":
            assert bool(listed.tokens_own) is bool(OWN & set(names))
        if listed.tokens_own:
            assert listed.hidden
        assert self.before in (None, listed.raw)
        self.before = listed.raw

    def nothing_denied_is_named(self, names, selection):
        named = {*names, *selection.shown, *selection.hidden}
        assert not [name for name in named if self.stage.filtering.denial(self.session, name)]
        denied = [name for name in self.catalog.names if self.stage.filtering.denial(self.session, name)]
        assert sorted([*selection.shown, *selection.hidden, *denied]) == sorted(self.catalog.names)

    def order_is_the_catalogues(self, names):
        assert names == [name for name in self.catalog.names if name in set(names)]


def lists_context_later(rules, era=ProtocolEra.HANDSHAKE):
    """A story in which set_context pays only with what is learned while the session lasts."""
    learned = ("learn", dict.fromkeys(("tool00", "tool03", "tool04", "tool05"), 1.0))
    first = ("learn", {"tool00": 1.0, "tool03": 1.0, "tool04": 0.5, "tool01": 0.0, "tool05": 1.0})
    about = ("context", 0, ("tool00",), 0.0)
    return {"rules": rules, "era": era, "story": [about, first, ("catalogue", 2), about, learned, (*about[:3], 1.0)]}


@settings(max_examples=60, deadline=None)
@example(**lists_context_later({"pinned": ("tool0[12]",), "max_tools": 4, "surface": "dynamic"}))
@given(rules=surroundings, era=st.sampled_from(ProtocolEra), story=steps)
def test_in_any_life_lists_stay_ordered_and_free_of_what_is_denied_and_nothing_is_sent_twice(rules, era, story):
    async def live():
        life = Life(rules, era)
        for step in story:
            if step[0] == "catalogue":
                life.catalogue_changed(step[1])
            else:
                await life.do(step)
            life.list()
        assert life.announced <= life.contexts
        assert len(life.sent) == len(set(life.sent))

    asyncio.run(live())
