"""Texts that say the same have the same hash."""

from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.knowledge.records import content_hash, normalised


def test_the_steps_are_taken_in_their_order():
    assert normalised("  \uff26\uff21\uff2c\uff23\uff2f\uff2e\u00a0\t\nmigration ") == "falcon migration"
    assert normalised("ﬁ Ⅳ ①") == "fi iv 1"
    assert normalised("zero\u200bwidth\u2060 soft\u00adhyphen bell\x07") == "zerowidth softhyphen bell"
    assert normalised("İ") == "i̇"
    assert normalised("a \u200b b") == "a b"
    assert normalised("\u200b a \u200b") == "a"


def test_the_hash_is_the_same_for_ever():
    assert content_hash("") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert content_hash(" Falcon \n MIGRATION") == content_hash("falcon migration")
    assert content_hash("falcon migrations") != content_hash("falcon migration")


def test_halves_of_surrogate_pairs_have_a_hash():
    assert content_hash("\ud800") != content_hash("\ud801")


@given(st.text(max_size=60))
def test_case_and_white_space_make_no_difference(text: str):
    spread = "\t " + text.replace(" ", " \n ") + "\r\n"
    assert content_hash(spread) == content_hash(text)
    assert "\x00" not in normalised(text)


@given(st.text(max_size=60))
def test_texts_of_printable_characters_take_the_same_way_as_all(text: str):
    assert normalised(text + "\u200b") == normalised(text) or text.rstrip() != text


BLANKS_AND_UNSEEN = st.text(
    st.sampled_from("aA\u0301\u0307i \t\u200b\u200d\u00ad\x07\u2060\u00a0\u03a3\u0345\uff26"), max_size=12
)


@given(st.text(max_size=60) | BLANKS_AND_UNSEEN)
def test_a_normal_form_is_its_own_normal_form(text: str):
    assert normalised(normalised(text)) == normalised(text)
