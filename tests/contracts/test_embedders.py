"""The embedder contract on every embedder."""

from collections.abc import Iterator

import pytest

from riglm.adapters.embedding.embedders import FallbackEmbedder
from riglm.adapters.embedding.fastembed import BUNDLED_MODEL
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.adapters.embedding.model_client import FastembedEmbedder
from riglm.domain.schemas.section import EmbedderSettings
from riglm.testing.embedder import EmbedderContract


class TestHashingEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> HashingEmbedder:
        return HashingEmbedder()


@pytest.fixture(scope="module")
def bundled() -> Iterator[FastembedEmbedder]:
    with FastembedEmbedder(BUNDLED_MODEL, EmbedderSettings(shared=False, deadline=60)) as embedder:
        yield embedder


class TestFastembedEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self, bundled: FastembedEmbedder) -> FastembedEmbedder:
        return bundled


@pytest.fixture(scope="module")
def without_its_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FallbackEmbedder]:
    settings = EmbedderSettings(directory=str(tmp_path_factory.mktemp("nothing")), shared=False)
    with FallbackEmbedder(FastembedEmbedder("no/such-model", settings), HashingEmbedder()) as embedder:
        yield embedder


class TestFallbackEmbedderWithoutItsModel(EmbedderContract):
    @pytest.fixture
    def embedder(self, without_its_model: FallbackEmbedder) -> FallbackEmbedder:
        return without_its_model
