"""What stands in while the model cannot be used."""

from dataclasses import asdict

from riglm.adapters.embedding.factory import FallbackEmbedder
from riglm.adapters.embedding.hashing import STATIC_MODEL, HashingEmbedder
from tests.unit.adapters.embedding.scripted import ScriptedEmbedder


def test_the_status_tells_what_stands_in_for_what() -> None:
    first = ScriptedEmbedder()
    first.fails = True
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        assert asdict(embedder.status()) == {
            "provider": "scripted",
            "model": "scripted",
            "status": "ready",
            "actual_provider": "static",
            "actual_model": STATIC_MODEL,
            "dimensions": 256,
            "is_fallback_active": True,
            "semantic_quality": "low",
        }


def test_the_name_of_the_model_is_that_of_the_last_answer() -> None:
    first = ScriptedEmbedder()
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        assert embedder.model == "scripted@1"
        first.fails = True
        assert embedder.model == "scripted@1"
        embedder.embed(["a"])
        assert embedder.model == STATIC_MODEL
        first.fails = False
        assert embedder.model == STATIC_MODEL
        embedder.embed(["a"])
        assert embedder.model == "scripted@1"


def test_the_status_follows_as_soon_as_the_model_is_back() -> None:
    first = ScriptedEmbedder()
    first.fails = True
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        first.fails = False
        assert embedder.status().is_fallback_active is False


def test_a_lasting_failure_is_told_once(caplog) -> None:
    first = ScriptedEmbedder()
    first.fails = True
    with FallbackEmbedder(first, HashingEmbedder()) as embedder:
        embedder.embed(["a"])
        embedder.embed(["b"])
    [told] = caplog.records
    assert told.levelname == "WARNING"
    assert told.reason == "scripted to fail"
