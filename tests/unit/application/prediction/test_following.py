"""Prediction goes by another plan while it is at work."""

import asyncio

import numpy as np

from riglm.adapters.prediction.usage_statistics import FrequencyPredictor
from riglm.application.prediction.prediction_settings import PredictionSettings, Strategy
from riglm.domain.session_state import SessionState
from tests.unit.application.prediction.scripted_embedder import TOOLS, Stage, a_session
from tests.waiting import WAIT_SECONDS

NAMES = TOOLS.names


class Contrary(FrequencyPredictor):
    """Likes best what is used least."""

    def predict(self, prediction_input, *, explain=False):
        prediction = super().predict(prediction_input, explain=explain)
        prediction.scores[:] = -np.asarray(prediction.scores)
        return prediction


def a_strategy(make):
    return Strategy(name=make.__name__, key=make.__name__, make=make)


def a_plan(**changes):
    given = {"strategy": a_strategy(Contrary), "scope": "principal", "most_pairs": 3, "period": 60.0}
    return PredictionSettings(**{**given, **changes})


def predictor(stage, principal=""):
    return type(stage.service.state.scope_models.of(principal).strategy)


async def loaded(stage, *principals):
    stage.service.know(TOOLS)
    await stage.recalled()
    for principal in principals:
        await stage.service.set_context(a_session(principal), SessionState(), "zebra")
    await stage.at_rest()


async def test_another_predictor_learns_from_the_record_before_it_answers():
    stage = Stage()
    stage.used_before("read_file", "read_file", "send_mail")
    stage.used_before("play_song", principal="ann")
    async with stage.running() as service:
        await loaded(stage, "ann")
        before = {who: predictor(stage, who) for who in ("", "ann")}
        told = asyncio.Event()
        service.on_reload(told.set)
        service.follow(a_plan(), reload=True)
        assert {who: predictor(stage, who) for who in before} == before
        async with asyncio.timeout(WAIT_SECONDS):
            await told.wait()
        assert {predictor(stage, who) for who in before} == {Contrary}
        models = service.state.scope_models
        assert (models.of("").tools, models.of("ann").tools) == ({"read_file", "send_mail"}, {"play_song"})


async def test_what_all_learned_together_serves_nobody_once_each_learns_alone():
    stage = Stage(scope="instance")
    stage.used_before("play_song", "play_song", principal="ann")
    async with stage.running() as service:
        await loaded(stage, "bob")
        assert service.predict(a_session("bob"), SessionState(), NAMES) is not None
        service.follow(a_plan(), reload=False)
        assert service.predict(a_session("bob"), SessionState(), NAMES) is None
        await stage.at_rest()
        assert service.predict(a_session("bob"), SessionState(), NAMES) is None
        await loaded(stage, "ann")
        assert service.predict(a_session("ann"), SessionState(), NAMES) is not None
