"""What of a text is embedded."""

from riglm.adapters.embedding.hashing import MAX_CHARACTERS, readable, text_hash


def test_halves_of_a_pair_are_joined_and_lonely_ones_replaced() -> None:
    assert readable("a\ud83d\ude00b\ud83dc") == "a😀b\ufffdc"


def test_plain_text_stays_as_it_is() -> None:
    assert readable("naïve\x00 text") == "naïve\x00 text"


def test_no_more_than_the_beginning_is_embedded() -> None:
    assert readable("x" * (MAX_CHARACTERS + 5)) == "x" * MAX_CHARACTERS
    assert text_hash("x" * (MAX_CHARACTERS + 5)) == text_hash("x" * (MAX_CHARACTERS + 6))


def test_texts_that_differ_have_different_hashes() -> None:
    assert text_hash("a") != text_hash("a ")
