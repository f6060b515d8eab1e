"""A change of the configuration is made whole or not at all."""

import asyncio
import threading

import pytest

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.persisting import ConfigurationDocuments
from riglm.application.control import configuration, following
from riglm.application.control.configuration import LiveConfiguration
from riglm.application.control.following import Aside, Follower, Following, PredictionFollower
from riglm.domain.control import Conflict, ControlUnavailable, Invalid
from riglm.domain.errors import ConfigurationError

TEXT = "upstream: {url: 'http://h/mcp'}\npredictor: {kind: frequency, options: {api_key: canary-of-options}}\n"
CHANGE = {"filtering": {"max_tools": 9}, "retention": {"session_days": 3}}


class Part(Follower):
    """Writes down what it is told, and fails when it is to."""

    def __init__(self, log, name, error=None):
        self.log, self.name, self.error = log, name, error

    async def prepare(self, before, after):
        self.log.append(("prepared", self.name, after.filtering.max_tools))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return lambda: self.log.append(("committed", self.name))


class Prediction:
    """What prediction is told."""

    def __init__(self):
        self.plans = []

    def follow(self, plan, *, anew):
        self.plans.append((plan, anew))


@pytest.fixture
def live(tmp_path):
    """Makes a live configuration of some parts, read from a file."""
    file = tmp_path / "riglm.yaml"
    file.write_text(TEXT, "utf-8")

    def made(*followers, environment=None):
        environment = environment or {}
        read = load(Options(config=file), environment=environment, directory=tmp_path)
        return LiveConfiguration(read.settings, ConfigurationDocuments(read, environment, tmp_path), followers)

    made.file = file
    return made


async def test_all_parts_are_ready_before_the_first_changes_over(live):
    log = []
    changed = await live(Part(log, "a"), Part(log, "b")).put(CHANGE)
    assert changed.version == 2
    assert log == [("prepared", "a", 9), ("prepared", "b", 9), ("committed", "a"), ("committed", "b")]


@pytest.mark.parametrize("persist", [False, True])
async def test_one_part_that_cannot_leaves_all_as_they_are(live, persist):
    log = []
    words = "filtering.max_tools: too many — fix: fewer\npredictor: canary-of-options is no key"
    here = live(Part(log, "a"), Part(log, "b", ConfigurationError(words)), Part(log, "c"))
    before = here.shown()
    with pytest.raises(Invalid) as refused:
        await here.put(CHANGE, persist=persist)
    assert [(fault.path, fault.detail) for fault in refused.value.faults] == [
        ("filtering.max_tools", "too many — fix: fewer"),
        ("predictor", "*** is no key"),
    ]
    assert [entry[0] for entry in log] == ["prepared", "prepared"]
    assert here.shown() == before
    assert live.file.read_text("utf-8") == TEXT


async def test_a_file_that_cannot_be_written_leaves_all_as_it_is(live):
    log = []
    here = live(Part(log, "a"), environment={"RIGLM_FILTERING__MAX_TOOLS": "7"})
    before = here.shown()
    with pytest.raises(Conflict, match="RIGLM_FILTERING__MAX_TOOLS sets it"):
        await here.put(CHANGE, persist=True)
    assert log == [("prepared", "a", 9)]
    assert here.shown() == before
    assert (await here.put(CHANGE)).version == 2  # in memory it can be changed


async def test_parts_hear_nothing_of_what_counts_from_the_next_start(live):
    log = []
    here = live(Part(log, "a"))
    changed = await here.put({"naming": "none"}, persist=True)
    assert (log, changed.version, changed.restart) == ([], 1, ("naming",))
    assert live.file.read_text("utf-8") == TEXT + "naming: none\n"


async def test_a_part_is_given_only_what_is_another_value(live):
    taken = []
    here = live(
        Following(lambda new: new.retention, taken.append), Following(lambda new: new.logging.level, taken.append)
    )
    await here.put({"logging": {"level": "debug"}, "retention": {"session_days": 180}})
    assert taken == ["debug"]


@pytest.mark.parametrize(
    ("change", "makes", "anew"),
    [
        ({"predictor": {"kind": "server", "options": None}}, 1, [True]),
        ({"learning": {"max_pairs": 7}}, 0, [False]),
        ({"filtering": {"coverage": 0.5}}, 0, [False]),
        ({"filtering": {"mode": "shadow"}}, 0, []),
    ],
    ids=str,
)
async def test_a_predictor_is_made_where_it_is_another_one(live, change, makes, anew):
    prediction, made = Prediction(), []
    here = live(PredictionFollower(prediction, lambda settings: settings.predictor.kind, made.append))
    await here.put(change)
    assert len(made) == makes
    assert [each for _, each in prediction.plans] == anew


async def test_a_predictor_is_made_where_prediction_begins(live):
    made = []
    here = live(PredictionFollower(Prediction(), lambda settings: settings, made.append))
    await here.put({"filtering": {"strategy": "none"}})
    assert made == []
    await here.put({"filtering": {"strategy": "prediction"}})
    assert len(made) == 1


async def test_a_predictor_that_tries_to_end_the_process_is_refused(live):
    def make(settings):
        raise SystemExit(3)

    here = live(PredictionFollower(Prediction(), lambda settings: settings, make))
    with pytest.raises(Invalid, match=r"predictor\.kind: 'ends' cannot be made \(SystemExit\)"):
        await here.put({"predictor": {"kind": "ends"}})


async def test_sections_are_set_back_whole_and_what_was_the_default_is_no_change(live):
    here = live()
    before = here.shown()
    nothing = {"privacy": None, "sessions": None, "filtering": None, "control": None, "timeouts": None}
    assert (await here.put(nothing)).version == before.version
    assert (await here.put({**nothing, "predictor": None})).version == before.version + 1
    assert here.settings.predictor.options == {}
    assert here.settings.predictor.kind == "hybrid"


async def test_a_predictor_that_hangs_is_refused_and_holds_up_no_other(live, monkeypatch):
    monkeypatch.setattr(following, "PROVING_SECONDS", 0.05)
    go_on, prediction = threading.Event(), Prediction()

    def make(settings):
        if settings.predictor.kind == "hangs":
            go_on.wait(30)

    here = live(PredictionFollower(prediction, lambda settings: settings, make))
    try:
        with pytest.raises(Invalid, match=r"predictor\.kind: 'hangs' was not made within"):
            await here.put({"predictor": {"kind": "hangs"}})
        monkeypatch.undo()
        assert (await here.put({"predictor": {"kind": "server"}})).version == 2
    finally:
        go_on.set()


async def test_a_disk_that_hangs_is_not_waited_for_and_nothing_stays_of_what_it_wrote(live, monkeypatch):
    monkeypatch.setattr(configuration, "_FILE_SECONDS", 0.05)
    go_on, discarded = threading.Event(), threading.Event()
    here = live()
    write = here._documents.write_aside

    def slow(*given):
        go_on.wait(30)
        written = write(*given)
        discard = written.discard
        written.discard = lambda: (discard(), discarded.set())
        return written

    monkeypatch.setattr(here._documents, "write_aside", slow)
    with pytest.raises(ControlUnavailable):
        await here.put(CHANGE, persist=True)
    go_on.set()
    assert await asyncio.to_thread(discarded.wait, 30)
    assert [file.name for file in live.file.parent.iterdir()] == ["riglm.yaml"]
    assert live.file.read_text("utf-8") == TEXT


async def test_a_job_aside_gives_its_answer_or_its_error():
    aside = Aside()
    assert await aside.do(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await aside.do(lambda: 1 // 0, 30.0)
    assert await aside.do(threading.get_ident) != threading.get_ident()
