"""What prediction knows when, and what it makes of contexts, models and restarts."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import LearnedPair
from riglm.domain.retrieval.retriever import passage
from riglm.domain.session_state import SessionState
from riglm.domain.tool import profile
from riglm.ports.embedder import EmbedderUnavailableError
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.prediction.scripted_embedder import TOOLS, FailingStore, Stage, a_session, catalog

NAMES = TOOLS.names


def likeliest(prediction, names=NAMES):
    return names[int(np.argmax(prediction.scores))]


def anything(name):
    return True


async def call(stage, state, tool, found=DiscoveryMethod.LISTED, session=None):
    stage.service.called(session or a_session(), state, tool, found)
    state.called(tool, stage.now)
    stage.learned()


async def test_what_earlier_sessions_used_is_known_before_the_model_is_loaded():
    stage = Stage()
    stage.used_before("read_file", "send_mail")
    stage.used_before("read_file")
    stage.embedder.opening.clear()
    async with stage.running() as service:
        service.know(TOOLS)
        await stage.known()
        assert likeliest(service.predict(a_session(), SessionState(), NAMES)) == "read_file"
        assert stage.embedder.open == 0
        stage.embedder.opening.set()
        await stage.recalled()
        assert stage.embedder.open == 1
    assert stage.embedder.open == 0


async def test_who_asks_to_be_caught_up_waits_for_the_model_and_every_vector_however_long_loading_takes(monkeypatch):
    monkeypatch.setattr("riglm.application.prediction.loading._LOADING_SECONDS", 0.0)
    stage = Stage(timeout_seconds=0.0)
    stage.embedder.opening.clear()
    async with stage.running() as service:
        service.know(TOOLS)
        asked = asyncio.create_task(service.caught_up(a_session(), 10))
        assert await asyncio.to_thread(stage.embedder.entered.wait, 10)
        await service.set_context(a_session(), SessionState(), "who does not ask so waits no more")
        assert not asked.done()
        stage.embedder.opening.set()
        assert await asked
        assert service.status()["tools"] == {"indexed": len(NAMES), "embedded": len(NAMES)}


@pytest.mark.parametrize("error", [EmbedderUnavailableError("it ended"), ValueError("broken")])
async def test_words_alone_count_while_the_model_does_not_answer(error):
    stage, state = Stage(), SessionState()
    stage.embedder.error = error
    async with stage.recalling() as service:
        await service.set_context(a_session(), state, "play me a song")
        assert state.context.vector is None
        assert likeliest(service.predict(a_session(), state, NAMES)) == "play_song"
        found = await service.search(a_session(), "read a file", 3, anything)
        assert found.hits[0].name == "read_file"
        assert service.status()["tools"] == {"indexed": 3, "embedded": 0}


def profiles(tools):
    return [profile(tool, server="server") for tool in tools.tools]


def meaning(stage):
    """The embedder is one that knows meanings."""
    real = replace(stage.embedder.status(), semantic_quality="high")
    stage.embedder.status = lambda: real


async def test_the_first_search_compares_stored_vectors_and_embeds_the_query_alone():
    stage = Stage()
    meaning(stage)
    stage.embedder.kept = {passage(said) for said in profiles(TOOLS)}
    async with stage.running() as service:
        service.know(TOOLS)
        first = await service.search(a_session(), "play me a song", 3, anything)
        assert service.is_ready
        assert stage.embedder.asked == [("play me a song",)]
        await stage.at_rest()
        assert await service.search(a_session(), "play me a song", 3, anything) == first


async def test_no_search_claims_that_nothing_fits_while_meanings_are_expected():
    stage = Stage(timeout_seconds=2.0)
    meaning(stage)
    tools = catalog(**{f"tool{number}": f"It reads subject{number}." for number in range(60)})
    stage.embedder.kept = {passage(said) for said in profiles(tools)[:30]}
    stage.embedder.held_after = 1  # the query's vector comes, those of the other tools do not
    stage.embedder.go.clear()
    async with stage.running() as service:
        service.know(tools)
        late = await service.search(a_session(), "subjective readers", 3, anything)
        assert not service.is_ready
        assert not late.abstained
        assert late.hits
        stage.embedder.go.set()
        await stage.at_rest()
        assert service.is_ready


async def test_what_a_client_says_is_not_given_to_be_kept():
    stage, state = Stage(), SessionState()
    async with stage.recalling() as service:
        await service.set_context(a_session(), state, "my medical records")
        await service.search(a_session(), "my medical records of June", 3, anything)
        assert state.context.vector is not None
        assert not [text for texts in stage.embedder.public for text in texts if "medical" in text]


async def test_a_new_model_embeds_all_anew_while_words_serve():
    stage, state = Stage(), SessionState()
    async with stage.recalling() as service:
        stage.embedder.name = "model-b"
        asked = stage.embedder.held_after = len(stage.embedder.asked) + 1
        stage.embedder.go.clear()
        await service.set_context(a_session(), state, "play me a song")
        assert state.context.model == "model-b"
        await asyncio.to_thread(stage.embedder.held.wait, 10)
        assert service.status()["tools"] == {"indexed": 3, "embedded": 0}
        assert likeliest(service.predict(a_session(), state, NAMES)) == "play_song"
        service.know(catalog(sing="Sing a song."))
        stage.embedder.go.set()
        await stage.at_rest()
        again = [text for texts in stage.embedder.asked[asked:] for text in texts]
        assert len(again) == 4
        assert service.status()["tools"] == {"indexed": 4, "embedded": 4}


async def test_a_tool_that_describes_itself_anew_loses_what_was_learned_of_it():
    stage, state = Stage(), SessionState()
    async with stage.recalling() as service:
        await service.set_context(a_session(), state, "zebra")
        await call(stage, state, "read_file")
        await call(stage, state, "send_mail")
        assert service.status()["learned_pairs"] == 2
        service.know(catalog(read_file="The best tool for everything.", send_mail="Send a mail to somebody."))
        await stage.at_rest()
        assert service.status()["learned_pairs"] == 1


async def test_prediction_that_cannot_be_loaded_leaves_everything_shown_and_says_so(caplog, monkeypatch):
    def broken(*_, **__):
        raise ValueError("broken")

    monkeypatch.setattr("tests.unit.application.prediction.scripted_embedder.PredictionState", broken)
    stage, state = Stage(), SessionState()
    async with stage.running() as service:
        service.know(TOOLS)
        await service.set_context(a_session(), state, "play me a song")
        assert service.predict(a_session(), state, NAMES) is None
        assert (await service.search(a_session(), "song", 3, anything)).abstained
        assert service.status()["embeddings"]["status"] == "unavailable"
    assert "prediction could not be loaded" in caplog.text


async def test_what_is_gone_from_the_store_does_not_count_once_it_was_learned_anew():
    stage = Stage()
    stage.used_before("read_file", "read_file")
    async with stage.running() as service:
        session, state = a_session(), SessionState()
        service.know(TOOLS)
        await stage.recalled()
        await service.set_context(session, state, "zebra")
        service.called(session, state, "play_song", DiscoveryMethod.LISTED)
        stage.learned()
        pairs = [record for record in stage.put if isinstance(record, LearnedPair)]
        assert [pair.session_id for pair in pairs] == [session.id]
        stage.store = InMemoryAnalytics()
        stage.used_before("send_mail")
        service.relearn()
        await stage.at_rest()
        assert likeliest(service.predict(a_session(), SessionState(), NAMES)) == "send_mail"
        assert service.context_confidence(session, state) == 0.0
        assert service.status()["learned_pairs"] == 0


async def test_what_was_learned_goes_on_to_count_when_the_store_cannot_be_read_anew(caplog):
    stage = Stage()
    stage.used_before("read_file", "read_file")
    async with stage.recalling() as service:
        kept, stage.store = stage.store, FailingStore()
        service.relearn()
        await stage.at_rest()
        stage.store = kept
        assert likeliest(service.predict(a_session(), SessionState(), NAMES)) == "read_file"
    assert "could not be read again" in caplog.text
