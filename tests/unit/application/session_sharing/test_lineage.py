"""Who changed a kept value last."""

import pytest

from riglm.application.session_sharing.signing import MAX_WRITERS, changed_by, head, read_head


def test_a_head_comes_back_as_it_was():
    assert read_head(head(7, {"a": 1, "b": 20})) == (7, {"a": 1, "b": 20})
    assert read_head(head(7, {})) == (7, {})


def test_a_head_of_an_earlier_riglm_names_no_writers():
    assert read_head(b"12") == (12, {})


@pytest.mark.parametrize(
    "line", [b"", b"x", b"-1", b"1 a", b"1 a=", b"1 a=b", b"1  a=1", b"9" * 16, b"1 a=" + b"9" * 16]
)
def test_what_is_no_head_is_none(line):
    assert read_head(line) is None


def test_the_latest_writers_are_told_each_with_its_last_change():
    writers = {}
    for number in range(MAX_WRITERS + 2):
        writers = changed_by(writers, f"w{number}", 1)
    writers = changed_by(writers, "w5", 2)
    assert list(writers) == [*(f"w{number}" for number in range(2, MAX_WRITERS + 2) if number != 5), "w5"]
    assert writers["w5"] == 2
