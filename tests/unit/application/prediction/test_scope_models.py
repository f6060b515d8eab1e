"""Each scope learns its own recorded sessions, again when enough of them have ended or a tool has changed."""

import asyncio
import threading

import numpy as np

from riglm.adapters.prediction.usage_statistics import FrequencyPredictor
from riglm.application.prediction import scope_models
from riglm.domain.session_state import SessionState
from tests.unit.application.prediction.scripted_embedder import TOOLS, FailingStore, Stage, a_session, catalog
from tests.waiting import WAIT_SECONDS

NAMES = TOOLS.names


async def loaded(stage, *principals):
    """Have everything loaded, and the sessions of these principals learned."""
    stage.service.know(TOOLS)
    await stage.recalled()
    for principal in principals:
        await stage.service.set_context(a_session(principal), SessionState(), "zebra")
    await stage.at_rest()


def model(stage, principal=""):
    return stage.service.state.scope_models.of(principal)


def first(stage, principal=""):
    """The likeliest tool, None with nothing to go by."""
    prediction = stage.service.predict(a_session(principal), SessionState(), NAMES)
    return None if prediction is None else NAMES[int(np.argmax(prediction.scores))]


async def end(stage, *tools, principal=""):
    """Record a session that ended, and let what follows from it come to rest."""
    stage.used_before(*tools, principal=principal)
    stage.service.ended(a_session(principal), SessionState(calls=list(tools)))
    first(stage, principal)
    await stage.at_rest()


async def test_a_model_is_made_again_when_the_sessions_that_ended_are_three_tenths_of_what_it_learned():
    stage = Stage()
    async with stage.running():
        await loaded(stage)
        learned = []
        for _ in range(11):
            await end(stage, "read_file")
            learned.append(model(stage).sessions)
        assert learned == [1, 2, 3, 4, 4, 6, 6, 8, 8, 8, 11]


async def test_a_scope_that_was_not_asked_for_lately_is_learned_when_it_is(monkeypatch):
    monkeypatch.setattr(scope_models, "MAX_SCOPES", 4)
    stage = Stage()
    stage.used_before("play_song", principal="ann")
    async with stage.running():
        await loaded(stage, "ann")
        for number in range(4):
            await loaded(stage, f"somebody {number}")
        assert first(stage, "ann") is None
        await loaded(stage, "ann")
        assert first(stage, "ann") == "play_song"


async def test_sessions_that_could_not_be_read_are_learned_when_the_store_is_back(caplog):
    stage = Stage(FailingStore())
    async with stage.running():
        await loaded(stage, "ann")
        assert first(stage, "ann") is None
        stage.store = Stage().store
        stage.used_before("play_song", principal="ann")
        assert first(stage, "ann") is None
        await stage.at_rest()
        assert first(stage, "ann") == "play_song"
    assert "could not be read again" in caplog.text


async def test_a_tool_that_describes_itself_anew_at_every_list_keeps_no_model_from_being_made():
    stage = Stage()
    stage.used_before("read_file")
    async with stage.running() as service:
        await loaded(stage)
        for number in range(3):
            service.know(catalog(read_file=f"Read a file at {number} o'clock.", send_mail="Send a mail to somebody."))
            await stage.at_rest()
        made = model(stage)
        service.know(catalog(read_file="Read a file at night.", send_mail="Send a mail to somebody."))
        await stage.at_rest()
        assert model(stage) is made


async def test_prediction_that_closes_while_it_learns_stops_learning():
    stage, learned, go = Stage(), [], threading.Event()
    stage.used_before(*["play_song"] * 50)

    class Slow(FrequencyPredictor):
        def learn(self, prediction_input, tool, weight=1.0):
            learned.append(tool)
            assert go.wait(WAIT_SECONDS)

    stage.make_predictor = Slow
    async with stage.running() as service:
        await stage.service._loading.loaded()
        async with asyncio.timeout(WAIT_SECONDS):
            while not learned:
                await asyncio.sleep(0.001)
        await service.close()
        go.set()
    assert learned == ["play_song"]
