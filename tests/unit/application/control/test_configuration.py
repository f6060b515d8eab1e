"""A change of the configuration is made whole or not at all."""

import asyncio
import contextlib
import threading

import pytest

from riglm.application.control import configuration
from riglm.application.control.configuration import LiveConfiguration, reload_prediction
from riglm.domain.errors import (
    AnalyticsUnavailableError,
    ConfigurationError,
    ConflictError,
    ControlUnavailableError,
    InvalidInputError,
)
from riglm.domain.schemas.settings import Settings
from tests.waiting import WAIT_SECONDS

START = {
    "upstream": {"url": "http://h/mcp"},
    "predictor": {"kind": "frequency", "options": {"api_key": "canary-of-options"}},
}
CHANGE = {"filtering": {"max_tools": 9}, "retention": {"session_days": 3}}


class Part:
    """Writes down what it is told, and fails when it is to."""

    def __init__(self, log, name, error=None):
        self.log, self.name, self.error = log, name, error

    async def __call__(self, before, after):
        self.log.append(("prepared", self.name, after.filtering.max_tools))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return lambda: self.log.append(("committed", self.name))


class Prediction:
    """What prediction is told."""

    def __init__(self):
        self.plans = []

    def follow(self, plan, *, reload):
        self.plans.append((plan, reload))


class Store:
    """Stores changes, and can be unavailable."""

    def __init__(self):
        self.stored = {}
        self.error = None

    def put_setting_changes(self, changes):
        if self.error is not None:
            raise self.error
        self.stored.update(changes)

    def list_setting_changes(self):
        if self.error is not None:
            raise self.error
        return dict(self.stored)

    async def read_setting_changes(self):
        return self.list_setting_changes()


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def live(store):
    """Makes a live configuration of some parts."""

    def made(*handlers, fixed=()):
        settings = Settings.model_validate(START)
        opened = contextlib.nullcontext(store)
        return LiveConfiguration(settings, open_store=lambda: opened, fixed=fixed, create_handlers=lambda: handlers)

    return made


async def test_all_parts_are_ready_before_the_first_changes_over(live):
    log = []
    here = live(Part(log, "a"), Part(log, "b"))
    before = here.shown().version
    changed = await here.put(CHANGE)
    assert changed.version == before + 1
    assert log == [("prepared", "a", 9), ("prepared", "b", 9), ("committed", "a"), ("committed", "b")]


async def test_one_part_that_cannot_leaves_all_as_they_are(live, store):
    log = []
    words = "filtering.max_tools: too many — fix: fewer\npredictor: canary-of-options is no key"
    here = live(Part(log, "a"), Part(log, "b", ConfigurationError(words)), Part(log, "c"))
    before = here.shown()
    with pytest.raises(InvalidInputError) as refused:
        await here.put(CHANGE)
    assert [(fault.path, fault.detail) for fault in refused.value.faults] == [
        ("filtering.max_tools", "too many — fix: fewer"),
        ("predictor", "*** is no key"),
    ]
    assert [entry[0] for entry in log] == ["prepared", "prepared"]
    assert (here.shown(), store.stored) == (before, {})


async def test_a_store_that_is_unavailable_leaves_all_as_it_is(live, store):
    log = []
    here = live(Part(log, "a"))
    before, store.error = here.shown(), AnalyticsUnavailableError("locked")
    with pytest.raises(ControlUnavailableError, match="try again later"):
        await here.put(CHANGE)
    assert (log, here.shown()) == ([], before)
    store.error = None
    assert (await here.put(CHANGE)).version == before.version + 1
    assert store.stored == {"filtering.max_tools": 9, "retention.session_days": 3}


async def test_what_is_read_at_the_start_only_is_refused_and_so_is_what_the_command_line_sets(live, store):
    log = []
    here = live(Part(log, "a"), fixed=[("logging", "level")])
    with pytest.raises(InvalidInputError) as refused:
        await here.put({"naming": "none", "control": {"port": 1}, "filtering": {"max_tools": 9}})
    assert {fault.path for fault in refused.value.faults} == {"naming", "control.port"}
    assert "fix: set it in riglm.yaml, and restart riglm" in refused.value.faults[0].detail
    with pytest.raises(ConflictError, match=r"logging\.level: set on the command line"):
        await here.put({"logging": {"level": "debug"}})
    assert (log, store.stored) == ([], {})


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"filtering.max_tools": "many"}, "filtering.max_tools: this is not a whole number"),
        ({"filtering.max_tools": 1}, "filtering.max_tools"),  # less than min_tools
        ({"predictor.kind": "gone"}, "predictor.kind: there is none"),
        ({"filtering.surface": "loud", "retention": "{", "predictor.kind": "gone"}, "filtering.surface"),
    ],
    ids=str,
)
async def test_stored_changes_that_cannot_be_applied_are_logged_and_leave_the_others(
    live, store, caplog, wrong, problem
):
    async def handler(before, after):
        if after.predictor.kind == "gone":
            raise ConfigurationError("predictor.kind: there is none called 'gone'")

    here = live(handler)
    before = here.settings
    store.put_setting_changes({**wrong, "filtering.denylist": ["delete_*"]})
    await here.refresh(store.read_setting_changes)
    assert here.settings.filtering.denylist == ("delete_*",)
    assert here.settings.filtering == before.filtering.model_copy(update={"denylist": ("delete_*",)})
    assert (here.settings.predictor, here.settings.retention) == (before.predictor, before.retention)
    assert problem in caplog.text
    assert "`riglm config reset` removes it" in caplog.text


async def test_a_change_that_undoes_one_of_another_process_is_stored(live, store):
    here, there = live(), live()
    await here.put({"filtering": {"max_tools": 7}})
    await there.put({"filtering": {"max_tools": 9}})
    assert (await here.put({"filtering": {"max_tools": 7}})).document["filtering"]["max_tools"] == 7
    assert store.stored == {"filtering.max_tools": 7}


@pytest.mark.parametrize(
    ("change", "makes", "reload"),
    [
        ({"predictor": {"kind": "server", "options": None}}, 1, [True]),
        ({"learning": {"max_pairs": 7}}, 0, [False]),
        ({"filtering": {"period": 600}}, 0, [False]),
        ({"filtering": {"coverage": 0.5, "max_tools": 5}}, 0, []),
        ({"filtering": {"mode": "shadow"}}, 0, []),
    ],
    ids=str,
)
async def test_a_predictor_is_made_where_it_is_another_one(live, change, makes, reload):
    prediction, made = Prediction(), []
    here = live(reload_prediction(prediction, lambda settings: settings.predictor.kind, made.append))
    await here.put(change)
    assert len(made) == makes
    assert [each for _, each in prediction.plans] == reload


async def test_a_predictor_that_hangs_is_refused_and_holds_up_no_other(live, monkeypatch):
    monkeypatch.setattr(configuration, "PROVING_SECONDS", 0.05)
    go_on, prediction = threading.Event(), Prediction()

    def make(settings):
        if settings.predictor.kind == "hangs":
            go_on.wait(WAIT_SECONDS)

    here = live(reload_prediction(prediction, lambda settings: settings, make))
    try:
        with pytest.raises(InvalidInputError, match=r"predictor\.kind: 'hangs' was not made within"):
            await here.put({"predictor": {"kind": "hangs"}})
        monkeypatch.undo()
        before = here.shown().version
        assert (await here.put({"predictor": {"kind": "server"}})).version == before + 1
    finally:
        go_on.set()
