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


def _cells(lines):
    return [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in lines if "│" in line]


def test_a_table_too_wide_for_the_terminal_becomes_several_that_begin_with_the_same_labels(shown):
    rows = [[name, "hybrid", *(100.0 + number for number in range(12))] for name in ("toolathlon", "bfcl_multiturn")]
    lines = shown(["dataset", "predictor", *FIGURES], rows, labels=2)
    assert max(map(len, lines)) <= 80
    cells = _cells(lines)
    assert all(row[1] == "hybrid" for row in cells)
    for name, _, *numbers in rows:
        told = [cell for row in cells if row[0] == name for cell in row[2:]]
        assert told == [f"{number:.1f}" for number in numbers]
    assert sum("Title" in line for line in lines) == 1


def test_a_long_text_goes_on_in_the_next_line_and_numbers_and_labels_do_not(shown):
    lines = shown(["tool", "ms", "answer"], [["read_multiple_files", 1234.5, "word " * 40]])
    assert max(map(len, lines)) <= 80
    assert sum("read_multiple_files" in line for line in lines) == 1
    assert sum("1234.5" in line for line in lines) == 1
    assert sum("word" in line for line in lines) > 1


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
