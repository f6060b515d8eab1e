"""A change of the configuration is made whole or not at all."""

import asyncio
import threading

import pytest

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.persisting import ConfigurationDocuments
from riglm.application.control import configuration
from riglm.application.control.configuration import (
    BlockingJobRunner,
    FilteringReloadHandler,
    LiveConfiguration,
    PredictionReloadHandler,
    ReloadHandler,
    ValueReloadHandler,
)
from riglm.domain.control import ConflictError, ControlUnavailableError, InvalidInputError
from riglm.domain.errors import ConfigurationError
from tests.waiting import WAIT_SECONDS

TEXT = "upstream: {url: 'http://h/mcp'}\npredictor: {kind: frequency, options: {api_key: canary-of-options}}\n"
CHANGE = {"filtering": {"max_tools": 9}, "retention": {"session_days": 3}}


class Part(ReloadHandler):
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

    def follow(self, plan, *, reload):
        self.plans.append((plan, reload))


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
    here = live(Part(log, "a"), Part(log, "b"))
    before = here.shown().version
    changed = await here.put(CHANGE)
    assert changed.version == before + 1
    assert log == [("prepared", "a", 9), ("prepared", "b", 9), ("committed", "a"), ("committed", "b")]


@pytest.mark.parametrize("persist", [False, True])
async def test_one_part_that_cannot_leaves_all_as_they_are(live, persist):
    log = []
    words = "filtering.max_tools: too many — fix: fewer\npredictor: canary-of-options is no key"
    here = live(Part(log, "a"), Part(log, "b", ConfigurationError(words)), Part(log, "c"))
    before = here.shown()
    with pytest.raises(InvalidInputError) as refused:
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
    with pytest.raises(ConflictError, match="RIGLM_FILTERING__MAX_TOOLS sets it"):
        await here.put(CHANGE, persist=True)
    assert log == [("prepared", "a", 9)]
    assert here.shown() == before
    assert (await here.put(CHANGE)).version == before.version + 1  # in memory it can be changed


async def test_parts_hear_nothing_of_what_counts_from_the_next_start(live):
    log = []
    here = live(Part(log, "a"))
    before = here.shown().version
    changed = await here.put({"naming": "none"}, persist=True)
    assert (log, changed.version, changed.restart) == ([], before, ("naming",))
    assert live.file.read_text("utf-8") == TEXT + "naming: none\n"


async def test_a_part_is_given_only_what_is_another_value(live):
    taken = []
    here = live(
        ValueReloadHandler(lambda new: new.retention, taken.append),
        ValueReloadHandler(lambda new: new.logging.level, taken.append),
    )
    await here.put({"logging": {"level": "debug"}, "retention": {"session_days": 180}})
    assert taken == ["debug"]


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
    here = live(PredictionReloadHandler(prediction, lambda settings: settings.predictor.kind, made.append))
    await here.put(change)
    assert len(made) == makes
    assert [each for _, each in prediction.plans] == reload


async def test_a_predictor_is_made_where_prediction_begins(live):
    made = []
    here = live(PredictionReloadHandler(Prediction(), lambda settings: settings, made.append))
    await here.put({"filtering": {"strategy": "none"}})
    assert made == []
    await here.put({"filtering": {"strategy": "prediction"}})
    assert len(made) == 1


async def test_a_predictor_that_tries_to_end_the_process_is_refused(live):
    def make(settings):
        raise SystemExit(3)

    here = live(PredictionReloadHandler(Prediction(), lambda settings: settings, make))
    with pytest.raises(InvalidInputError, match=r"predictor\.kind: 'ends' cannot be loaded \(SystemExit\)"):
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
    monkeypatch.setattr(configuration, "PROVING_SECONDS", 0.05)
    go_on, prediction = threading.Event(), Prediction()

    def make(settings):
        if settings.predictor.kind == "hangs":
            go_on.wait(WAIT_SECONDS)

    here = live(PredictionReloadHandler(prediction, lambda settings: settings, make))
    try:
        with pytest.raises(InvalidInputError, match=r"predictor\.kind: 'hangs' was not made within"):
            await here.put({"predictor": {"kind": "hangs"}})
        monkeypatch.undo()
        before = here.shown().version
        assert (await here.put({"predictor": {"kind": "server"}})).version == before + 1
    finally:
        go_on.set()


async def test_a_disk_that_hangs_is_not_waited_for_and_nothing_stays_of_what_it_wrote(live, monkeypatch):
    monkeypatch.setattr(configuration, "_FILE_SECONDS", 0.05)
    go_on, discarded = threading.Event(), threading.Event()
    here = live()
    write = here._documents.write_temporary

    def slow(*given):
        go_on.wait(WAIT_SECONDS)
        written = write(*given)
        discard = written.discard
        written.discard = lambda: (discard(), discarded.set())
        return written

    monkeypatch.setattr(here._documents, "write_temporary", slow)
    with pytest.raises(ControlUnavailableError):
        await here.put(CHANGE, persist=True)
    go_on.set()
    assert await asyncio.to_thread(discarded.wait, 30)
    assert [file.name for file in live.file.parent.iterdir()] == ["riglm.yaml"]
    assert live.file.read_text("utf-8") == TEXT


async def test_a_job_aside_gives_its_answer_or_its_error():
    aside = BlockingJobRunner()
    assert await aside.do(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await aside.do(lambda: 1 // 0, 30.0)
    assert await aside.do(threading.get_ident) != threading.get_ident()


async def test_an_answer_has_the_document_of_its_own_change(live):
    here = live()
    changes = await asyncio.gather(*(here.put({"filtering": {"max_tools": 10 + place}}) for place in range(5)))
    assert [change.document["filtering"]["max_tools"] for change in changes] == [10, 11, 12, 13, 14]
    assert changes[-1].document == here.shown().document


async def test_a_version_of_another_process_is_none_of_this_one(live):
    one, other = live(), live()
    with pytest.raises(ConflictError):
        await other.put(CHANGE, expected_version=one.shown().version)


async def test_what_was_written_for_the_next_start_is_taken_back(live):
    here = live()
    assert (await here.put({"naming": "none"}, persist=True)).restart == ("naming",)
    assert (await here.put({"naming": "prefix"}, persist=True)).restart == ()
    assert "none" not in live.file.read_text("utf-8")


async def test_a_whole_document_leaves_what_may_not_be_changed_as_it_is_in_the_file(live):
    here = live()
    live.file.write_text(TEXT + "control: {port: 9}\n", "utf-8")
    await here.put({**here.shown().document, "naming": "none"}, persist=True)
    assert live.file.read_text("utf-8") == TEXT + "control: {port: 9}\nnaming: none\n"


async def test_a_large_document_is_read_and_tried_aside_from_the_loop(live, monkeypatch):
    log, threads = [], set()
    here = live(Part(log, "a"))
    for name in ("merged", "differences", "shown"):
        work = getattr(here._documents, name)

        def noted(*given, work=work):
            threads.add(threading.get_ident())
            return work(*given)

        monkeypatch.setattr(here._documents, name, noted)
    await here.put(CHANGE)
    with pytest.raises(InvalidInputError):
        await here.put({"filtering": {"max_tool": 3}})
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_of_very_many_faults_a_hundred_are_told(live):
    with pytest.raises(InvalidInputError) as refused:
        await live().put({f"max_tols_{number}": 1 for number in range(5000)})
    assert len(refused.value.faults) == 101
    assert "4900 more places are wrong" in refused.value.faults[-1].detail


@pytest.mark.parametrize("change", [{"filtering": {"denylist": ["a", "b*"]}}, {"prices": {"preset": "uncached"}}])
async def test_rules_and_prices_are_made_ready_aside_from_the_loop(live, change):
    prepared, told = [], []

    class Filter:
        def prepared(self, rules, predictor, prices):
            prepared.append((threading.get_ident(), prices.cache_write))
            return lambda: None

    here = live(FilteringReloadHandler(Filter(), lambda: told.append(threading.get_ident())))
    await here.put(change)
    assert told == [threading.get_ident()]
    ((thread, written),) = prepared
    assert thread != threading.get_ident()
    assert written == (1.0 if "prices" in change else 1.25)
