from datetime import UTC, datetime

import pytest

from riglm.domain.duration import parsed_duration, parsed_moment

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("12h", 43_200),
        ("30d", 2_592_000),
        ("2w", 1_209_600),
        ("1.5 H", 5_400),
        (" 1d ", 86_400),
    ],
)
def test_a_span_is_a_number_with_a_unit(text, seconds):
    assert parsed_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "30", "-1d", "0d", "1y", "1d2h", "\u0661d", "36501d"])
def test_anything_else_is_no_span(text):
    with pytest.raises(ValueError, match="for example 30d"):
        parsed_duration(text)


def test_a_moment_is_a_date_in_utc_or_a_span_before_now():
    assert parsed_moment("30d", NOW) == NOW - 2_592_000
    assert parsed_moment("2026-01-31", NOW) == datetime(2026, 1, 31, tzinfo=UTC).timestamp()
    assert parsed_moment("2026-01-31T12:00+02:00", NOW) == datetime(2026, 1, 31, 10, tzinfo=UTC).timestamp()
