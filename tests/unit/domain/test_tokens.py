"""Estimates of tokens."""

import pytest

from riglm.domain.tool import estimated_tokens


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4000, 1000)])
def test_tokens_are_a_quarter_of_the_bytes_rounded_up(size, tokens):
    assert estimated_tokens(size) == tokens
