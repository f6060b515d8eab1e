"""The plug-in keeps riglm's contract."""

import pytest
from riglm_recency.embedder import WordsEmbedder

from riglm.testing.embedder import EmbedderContract


class TestWordsEmbedder(EmbedderContract):
    """Every test of the contract is run with this embedder."""

    @pytest.fixture
    def embedder(self) -> WordsEmbedder:
        return WordsEmbedder()
