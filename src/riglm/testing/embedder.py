"""What every embedder must do: subclass `EmbedderContract` and give it an open embedder."""

import math
from dataclasses import asdict
from typing import Final

import numpy as np
import pytest

from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort

TEXTS: Final = (
    "Search the web for pages",
    "Read a file from disk",
    "a",
    "createIssue: opens an issue in a repository of the user, with a title, a body, labels and people who look at it",
)
"""Texts of different lengths."""

ODD: Final = {
    "empty": "",
    "blank": " \n\t",
    "control characters": "read\x00 a\x1b[31m file\x7f\x85",
    "half a surrogate pair": "read \ud83d a file",
    "no Latin letters": "在网上搜索 поиск 🔍",
    "only punctuation": "?!…---",
    "a megabyte in one word": "x" * 1_000_000,
    "a megabyte of words": "search the web " * 70_000,
    "only words that say nothing": "the of and to",
}
"""Unusual texts, by what is unusual about them."""


def is_unit(rows: Vector) -> bool:
    """Whether every row has length 1."""
    return bool(np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5))


class EmbedderContract:
    """Override the fixture `embedder` with an open embedder."""

    @pytest.fixture
    def embedder(self) -> EmbedderPort:
        """The embedder under test, open."""
        raise NotImplementedError

    def test_every_text_gets_a_row_of_unit_length(self, embedder: EmbedderPort) -> None:
        """32-bit floats, in the order of the texts."""
        rows = embedder.embed(TEXTS)
        assert rows.dtype == np.float32
        assert rows.shape == (len(TEXTS), embedder.status().dimensions)
        assert is_unit(rows)

    def test_no_texts_get_no_rows(self, embedder: EmbedderPort) -> None:
        """An empty result still has the right number of dimensions."""
        assert embedder.embed([]).shape == (0, embedder.status().dimensions)

    def test_a_text_gets_the_same_row_in_any_company(self, embedder: EmbedderPort) -> None:
        """Vectors are equal to the last bit: alone, in any order, next to longer texts, and when repeated."""
        alone = {text: embedder.embed([text])[0] for text in TEXTS}
        batch = [*reversed(TEXTS), *TEXTS, "word " * 200, *TEXTS]
        for text, row in zip(batch, embedder.embed(batch), strict=True):
            if text in alone:
                assert np.array_equal(row, alone[text])

    @pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
    def test_an_odd_text_gets_a_row_like_any_other(self, embedder: EmbedderPort, odd: str) -> None:
        """Nothing that a stranger writes is refused, and what follows is not harmed."""
        rows = embedder.embed([odd, TEXTS[0]])
        assert is_unit(rows)
        assert np.array_equal(rows[1], embedder.embed([TEXTS[0]])[0])

    def test_what_is_about_the_same_is_nearer(self, embedder: EmbedderPort) -> None:
        """Else the vectors say nothing."""
        request, near, far = embedder.embed(["reading a file", "Reads the files of a project", "Weather in Lisbon"])
        assert request @ near > request @ far

    def test_the_answer_is_the_callers_to_change(self, embedder: EmbedderPort) -> None:
        """What the caller does with it changes no later answer."""
        before = embedder.embed([TEXTS[0]])
        expected = before.copy()
        before *= 2
        assert np.array_equal(embedder.embed([TEXTS[0]]), expected)

    def test_the_status_tells_what_is_at_work(self, embedder: EmbedderPort) -> None:
        """The name of the vectors begins with the actual model's, and nothing in it is not a number."""
        embedder.embed([TEXTS[0]])
        status = embedder.status()
        assert status.status == "ready"
        assert status.semantic_quality in {"high", "low"}
        assert embedder.model.startswith(status.actual_model)
        assert status.dimensions > 0
        assert not any(isinstance(value, float) and math.isnan(value) for value in asdict(status).values())
