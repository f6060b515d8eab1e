"""Tables fit where they are shown."""

import re
import sys
import time

import pytest

from riglm.cli.output import json_time, print_table, written_time

FIGURES = [f"figure_{number}" for number in range(12)]


@pytest.fixture
def shown(monkeypatch, capsys):
    """What a table looks like in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def shown(columns, rows, **options):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        print_table("Title", columns, rows, **options)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()

    return shown


def test_a_table_fits_into_the_terminal_and_loses_nothing(shown):
    lines = shown(["tool", "ms", "answer"], [["read_multiple_files", 1234.5, "word " * 40]])
    assert max(map(len, lines)) <= 80
    assert sum(line.count("word") for line in lines) == 40
    assert sum("1234.5" in line for line in lines) == 1


def test_a_label_wider_than_half_of_the_terminal_is_shown_whole_over_several_lines(shown):
    lines = shown(["tool", "calls"], [["x" * 200, 3]])
    assert max(map(len, lines)) <= 80
    assert sum(line.count("x") for line in lines) == 200


def test_a_table_without_rows_still_names_its_columns(shown):
    assert any("figure_0" in line for line in shown(FIGURES[:2], []))


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize(("seconds", "year"), [(253_402_344_000.0, "9999"), (-7e10, "0001"), (1e300, "9999")])
def test_a_time_beyond_any_calendar_is_shown_as_the_nearest(monkeypatch, zone, seconds, year):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert written_time(seconds).lstrip("0").startswith(year.lstrip("0"))
        assert json_time(seconds).startswith(year)
    finally:
        monkeypatch.undo()
        time.tzset()
