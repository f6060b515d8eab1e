"""What holds for every list, whatever a session does and whatever is predicted."""

import asyncio
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.domain.invocation import Found
from riglm.domain.override import Override, OverrideKind
from riglm.domain.session import Era
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
        st.tuples(st.just("learn"), likes, st.floats(0, 1)),
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
        "surface": st.sampled_from(["dynamic", "dynamic", "auto", "stable", "hints", "full"]),
    }
)


class Life:
    """One session under watch: every list that it is shown is checked against the last one."""

    def __init__(self, rules, era):
        self.stage = Stage(**rules)
        self.session = a_session("client", era)
        self.catalogue = CATALOGUES[0]
        self.contexts = 0
        self.announced = 0
        self.since = None
        self.list()

    async def do(self, step):
        what, *given = step
        await getattr(self, what)(*given) if what == "context" else getattr(self, what)(*given)

    async def context(self, number, liked, confidence):
        before = self.stage.filtering.state(self.session).context
        self.announced += await self.stage.about(self.session, f"task {number}", *liked, confidence=confidence)
        if self.stage.filtering.state(self.session).context is not before:
            self.contexts += 1
            self.since = None

    def call(self, tool, key):
        changed = self.stage.calls(self.session, tool, found=Found.NAMED, turn_key=key)
        self.announced += changed
        if changed:
            self.since = None

    def pause(self, seconds):
        self.stage.now += seconds

    def learn(self, liked, confidence):
        self.stage.prediction.likes, self.stage.prediction.confidence = liked, confidence

    def catalogue_changed(self, number):
        self.catalogue = CATALOGUES[number]
        self.since = None

    def override(self, kind, tool):
        one = Override(id=uuid4(), kind=kind, tool=tool, created_at=self.stage.now)
        self.stage.overrides = (*self.stage.overrides, one)
        self.since = None

    def list(self):
        listed = self.stage.filtering.compose(self.session, self.catalogue)
        prediction = self.stage.prediction
        kept = prediction.likes, prediction.confidence
        prediction.likes, prediction.confidence = NAMES[::-3], 1.0 - prediction.confidence
        again = self.stage.filtering.compose(self.session, self.catalogue)
        prediction.likes, prediction.confidence = kept
        names = [name for name in names_in(listed.raw) if name not in OWN]
        assert again == listed
        self.nothing_denied_is_named(names, listed.selection)
        self.order_is_the_catalogues(names)
        if self.since is not None and self.stage.filtering.rules.mode == "enforce":
            assert self.since <= set(names)
        self.since = set(names)

    def nothing_denied_is_named(self, names, selection):
        named = {*names, *selection.shown, *selection.hidden}
        assert not [name for name in named if self.stage.filtering.denial(self.session, name)]
        denied = [name for name in self.catalogue.names if self.stage.filtering.denial(self.session, name)]
        assert sorted([*selection.shown, *selection.hidden, *denied]) == sorted(self.catalogue.names)

    def order_is_the_catalogues(self, names):
        assert names == [name for name in self.catalogue.names if name in set(names)]


@settings(max_examples=150, deadline=None)
@given(rules=surroundings, era=st.sampled_from(Era), story=steps)
def test_in_any_life_lists_are_ordered_stable_growing_and_free_of_what_is_denied(rules, era, story):
    async def live():
        life = Life(rules, era)
        for step in story:
            if step[0] == "catalogue":
                life.catalogue_changed(step[1])
            else:
                await life.do(step)
            life.list()
        assert life.announced <= life.contexts + 1

    asyncio.run(live())
