"""Texts are cut at the end of a sentence where there is one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.knowledge.provenance import MAX, capped


def test_as_many_whole_sentences_as_fit_are_kept():
    assert capped("One. Two! Three? Four", 18).text == "One. Two! Three?"
    assert capped("One. Two! Three? Four", 11).text == "One. Two!"


@given(st.text(alphabet="ab.!? \n😀", max_size=60), st.integers(1, 40))
def test_what_is_left_is_the_longest_that_ends_a_sentence_or_the_limit(text: str, longest: int):
    cut = capped(text, longest)
    assert (cut.text, cut.start) == (text[: cut.end], 0)
    assert len(cut.text) <= longest
    if len(text) <= longest:
        assert cut.text == text
        return
    ends = [end for end in range(1, longest + 1) if text[end - 1] in ".!?" and re.match(r"\s", text[end : end + 1])]
    assert cut.end == (max(ends) if ends and max(ends) >= longest * 0.75 else longest)


def test_an_abbreviation_at_the_beginning_is_not_all_that_is_left():
    assert capped("TODO. " + "x" * 900).text == "TODO. " + "x" * (MAX - 6)
