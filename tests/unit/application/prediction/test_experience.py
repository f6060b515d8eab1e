"""Whoever does not learn from somebody is told nothing of what that one did; what changed starts anew."""

import asyncio
import threading

import numpy as np
import pytest

from riglm.adapters.prediction.usage_statistics import FrequencyPredictor
from riglm.application.prediction.scope_models import MAX_SCOPES
from riglm.application.worker import Urgency
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import PredictionInput
from riglm.domain.session_state import SessionState
from tests.unit.application.prediction.scripted_embedder import NOON, TOOLS, FailingStore, Stage, a_session, catalog
from tests.waiting import WAIT_SECONDS

NAMES = TOOLS.names


async def loaded(stage, *principals):
    """Have everything loaded, and the past of these principals replayed."""
    stage.service.know(TOOLS)
    await stage.recalled()
    for principal in principals:
        await stage.service.set_context(a_session(principal), SessionState(), "zebra")
    await stage.at_rest()


def used(stage, principal=""):
    return stage.service.knowledge.scope_models.of(principal).used


def first(stage, principal="", calls=()):
    """The likeliest tool, None with nothing to go by."""
    prediction = stage.service.predict(a_session(principal), SessionState(calls=list(calls)), NAMES)
    return None if prediction is None else NAMES[int(np.argmax(prediction.scores))]


async def call(stage, principal, tool):
    stage.service.called(a_session(principal), SessionState(), tool, DiscoveryMethod.LISTED, NAMES)
    stage.learned()


async def test_a_principal_that_never_called_anything_is_told_nothing_of_what_others_called():
    stage = Stage()
    stage.used_before("read_file", "send_mail")
    stage.used_before("read_file")
    stage.used_before("play_song", "play_song", principal="ann")
    async with stage.running():
        await loaded(stage, "ann", "bob")
        await call(stage, "ann", "play_song")
        assert [first(stage, who) for who in ("", "ann", "bob")] == ["read_file", "play_song", None]
        assert [used(stage, who) for who in ("ann", "bob")] == [{"play_song"}, set()]


async def test_probabilities_of_a_principal_are_fitted_to_its_own_sessions():
    stage = Stage()
    for number in range(20):
        stage.used_before("play_song", principal="ann")
        stage.used_before("play_song" if number % 2 else "send_mail", principal="bob")
    async with stage.running() as service:
        await loaded(stage, "ann", "bob")
        of_ann, of_bob = (service.predict(a_session(who), SessionState(), NAMES) for who in ("ann", "bob"))
        assert (of_ann.evidence, of_bob.evidence) == (20, 20)
        mail, song = NAMES.index("send_mail"), NAMES.index("play_song")
        assert of_ann.scores[[mail, song]].tolist() == pytest.approx([0.0, 1.0], abs=0.1)
        assert of_bob.scores[[mail, song]].tolist() == pytest.approx([0.5, 0.5], abs=0.15)


@pytest.mark.parametrize("scope", ["instance", "tenant"])
async def test_where_all_learn_from_all_there_is_one_experience(scope):
    stage = Stage(scope=scope)
    stage.used_before("play_song", "play_song", principal="ann")
    async with stage.running():
        await loaded(stage, "bob")
        assert first(stage, "bob") == "play_song"
        await call(stage, "carl", "read_file")
        assert used(stage) == {"play_song", "read_file"}


async def test_a_scope_that_was_not_asked_for_lately_is_replayed_when_it_is():
    stage = Stage()
    stage.used_before("play_song", principal="ann")
    async with stage.running() as service:
        await loaded(stage, "ann")
        for number in range(MAX_SCOPES):
            await loaded(stage, f"somebody {number}")
        assert service.knowledge.scope_models.known("ann") is None
        await loaded(stage, "ann")
        assert first(stage, "ann") == "play_song"


async def test_what_another_process_served_is_learned_in_the_scope_of_its_principal():
    stage = Stage()
    async with stage.running() as service:
        await loaded(stage, "ann", "bob")
        for whose in ("ann", "nobody that was here"):
            service.learn_along(
                PredictionInput(candidates=(), principal=whose, time=NOON), "play_song", DiscoveryMethod.LISTED
            )
        stage.learned()
        assert [used(stage, who) for who in ("", "ann", "bob")] == [set(), {"play_song"}, set()]


async def test_a_principal_whose_past_cannot_be_read_starts_cold_and_learns(caplog):
    stage = Stage(FailingStore())
    async with stage.running():
        await loaded(stage, "ann")
        await call(stage, "ann", "play_song")
        assert first(stage, "ann") == "play_song"
    assert "could not be read again" in caplog.text


async def test_a_tool_that_describes_itself_anew_is_what_was_never_used():
    stage = Stage()
    for _ in range(5):
        stage.used_before("read_file")
        stage.used_before("read_file", principal="ann")
    stage.used_before("send_mail")
    async with stage.running() as service:
        await loaded(stage, "ann")
        assert (first(stage), first(stage, "ann")) == ("read_file", "read_file")
        service.know(catalog(read_file="The best tool for everything.", send_mail="Send a mail to somebody."))
        await stage.at_rest()
        assert (first(stage), used(stage)) == ("send_mail", {"send_mail"})
        assert (first(stage, "ann"), used(stage, "ann")) == (None, set())
        stage.now += 1
        await call(stage, "ann", "read_file")
        assert first(stage, "ann") == "read_file"


async def test_calls_after_a_change_are_replayed_and_those_before_are_not():
    stage = Stage()
    stage.used_before(*["read_file"] * 20, "send_mail")
    async with stage.running() as service:
        await loaded(stage)
        stage.now = NOON - 86_400.0 + 20.5  # the change lies between the calls that are on record
        service.know(catalog(send_mail="Sends all mail, to anybody.", read_file="Reads what there is."))
        await stage.at_rest()
        assert used(stage) == {"send_mail"}


async def test_a_burst_of_calls_and_marks_is_kept_whole_by_a_clean_end(caplog):
    stage, state = Stage(), SessionState()
    names = tuple(f"tool_{number}" for number in range(301))
    async with stage.running() as service:
        await loaded(stage)
        session = a_session()
        await service.set_context(session, state, "zebra")
        for name in names[:300]:
            service.called(session, state, name, DiscoveryMethod.LISTED, names)
        service.marked(session, state, names[300], relevant=True)
    assert {pair.tool for pair in stage.store.list_learned_pairs("model-a")} == set(names)
    assert "training examples were left out" in caplog.text


async def test_a_mark_does_not_wait_for_the_calls_before_it():
    stage, state = Stage(), SessionState()
    async with stage.running() as service:
        await loaded(stage)
        session = a_session()
        await service.set_context(session, state, "zebra")
        for _ in range(250):
            service.called(session, state, "read_file", DiscoveryMethod.LISTED, NAMES)
        service.marked(session, state, "play_song", relevant=True)
        async with asyncio.timeout(WAIT_SECONDS):
            while not any(isinstance(record, LearnedPair) for record in stage.put):
                await asyncio.sleep(0)
        assert stage.put[0].tool == "play_song"


async def test_a_long_past_is_replayed_in_slices_between_which_others_get_their_turn(monkeypatch):
    monkeypatch.setattr("riglm.application.prediction.scope_models._SLICE_SECONDS", 0.0)
    stage, order = Stage(), []
    stage.used_before(*["play_song", "read_file"] * 2, principal="ann")

    class Told(FrequencyPredictor):
        def learn(self, prediction_input, tool, weight=1.0):
            order.append(tool)

    stage.make_predictor = Told
    async with stage.running() as service:
        await loaded(stage)
        held, running = threading.Event(), threading.Event()
        stage.worker.submit(lambda: running.set() or held.wait(WAIT_SECONDS))
        assert await asyncio.to_thread(running.wait, 10)
        assert first(stage, "ann") is None
        for _ in range(3):
            stage.worker.submit(lambda: order.append("another's turn"), Urgency.LATER)
        held.set()
        await service.knowledge.scope_models.ready("ann", 10.0)
        assert order == ["play_song", *["another's turn"] * 3, "read_file", "play_song", "read_file"]
        assert used(stage, "ann") == {"play_song", "read_file"}
