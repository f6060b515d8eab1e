"""The embedder contract on every embedder."""

from collections.abc import Iterator

import pytest

from riglm.adapters.embedding.bundled import BUNDLED_MODEL
from riglm.adapters.embedding.cached import CachedEmbedder
from riglm.adapters.embedding.factory import FallbackEmbedder, build_embedder
from riglm.adapters.embedding.fastembed import FastembedEmbedder
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.domain.schemas.section import EmbedderSettings
from riglm.ports.embedder import EmbedderPort
from riglm.testing.embedder import EmbedderContract


class TestHashingEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> HashingEmbedder:
        return HashingEmbedder()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastembedEmbedder]:
    with FastembedEmbedder((BUNDLED_MODEL,), directory=tmp_path_factory.mktemp("models"), deadline=60) as embedder:
        yield embedder


class TestFastembedEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self, real: FastembedEmbedder) -> FastembedEmbedder:
        return real


class TestCachedEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self, real: FastembedEmbedder) -> CachedEmbedder:
        return CachedEmbedder(real)


@pytest.fixture(scope="module")
def without_its_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FallbackEmbedder]:
    nothing = FastembedEmbedder(("no/such-model",), directory=tmp_path_factory.mktemp("nothing"))
    with FallbackEmbedder(nothing, HashingEmbedder()) as embedder:
        yield embedder


class TestFallbackEmbedderWithoutItsModel(EmbedderContract):
    @pytest.fixture
    def embedder(self, without_its_model: FallbackEmbedder) -> FallbackEmbedder:
        return without_its_model


@pytest.fixture(scope="module")
def built() -> Iterator[EmbedderPort]:
    with build_embedder(EmbedderSettings(deadline=60, start_deadline=60)) as embedder:
        yield embedder


class TestWhatTheDefaultsBuild(EmbedderContract):
    @pytest.fixture
    def embedder(self, built: EmbedderPort) -> EmbedderPort:
        return built
