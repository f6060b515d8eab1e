import json

import pytest
from typer.testing import CliRunner

from riglm.application.evaluation.dataset import DatasetError
from riglm.cli.main import app
from tests.unit.application.evaluation.sets import write

TOOLS = [
    {"name": "get_sum", "description": "Returns the sum of two numbers"},
    {"name": "web_search", "description": "Search the web for information"},
]
FIGURES = {f"{kind}@{cut}" for kind in "rc" for cut in (1, 2)} | {"n", "n@10", "mrr", "p50_ms", "p99_ms"}


@pytest.fixture
def run(tmp_path):
    config = tmp_path / "riglm.yaml"
    config.write_text("embedder: {provider: static}\n")

    def run(command, *more):
        options = ["--config", str(config), "--cache", str(tmp_path / "vectors.sqlite"), "--k", "1,2", *more]
        return CliRunner().invoke(app, ["evaluate", command, "--data", str(tmp_path / "data"), *options])

    return run


def _queries(count):
    return [{"id": str(number), "query": f"sum of numbers {number}", "tools": ["get_sum"]} for number in range(count)]


def test_retrieval_prints_the_figures_of_each_set_and_predictor(tmp_path, run):
    write(tmp_path / "data" / "small", TOOLS, _queries(3))
    done = run("retrieval", "--predictor", "embedding", "--predictor", "lexical", "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [(row["dataset"], row["side"], row["predictor"]) for row in rows] == [
        ("small", "dev", "embedding"),
        ("small", "dev", "lexical"),
    ]
    assert set(rows[0]) >= FIGURES
    assert rows[0]["r@1"] == rows[1]["r@1"] == 100.0


def test_usage_shows_the_same_half_without_and_with_history(tmp_path, run):
    write(tmp_path / "data" / "small", TOOLS, _queries(80))
    (row,) = json.loads(run("usage", "--json", "small").stdout)
    assert set(row) >= FIGURES | {"dataset", "side", "predictor", "history"}
    assert row["n"] == row["without_history"]["n"] == 80 - row["history"]


def test_the_table_of_usage_has_a_line_for_each_of_them(tmp_path, run):
    write(tmp_path / "data" / "small", TOOLS, _queries(80))
    assert run("usage", "small").stdout.count("embedding") == 2
    assert run("usage", "--predictor", "lexical").stdout.count("lexical") == 1


def test_sets_too_small_for_halves_are_left_out_of_usage(tmp_path, run):
    write(tmp_path / "data" / "few", TOOLS, _queries(3))
    write(tmp_path / "data" / "more", TOOLS, _queries(80))
    done = run("usage", "--json")
    assert [row["dataset"] for row in json.loads(done.stdout)] == ["more"]
    assert "few: left out, of its 3 requests" in done.stderr


def test_a_table_names_what_was_measured(tmp_path, run):
    write(tmp_path / "data" / "small", TOOLS, _queries(3))
    assert "small" in run("retrieval").stdout


def test_wrong_data_is_an_error_with_file_and_line(tmp_path, run):
    write(tmp_path / "data" / "small", TOOLS, [{"id": "1", "query": "x", "tools": ["nobody"]}])
    failed = run("retrieval")
    assert isinstance(failed.exception, DatasetError)
    assert "queries.jsonl:1" in str(failed.exception)


@pytest.mark.parametrize("cuts", ["", "a", "0,5", "5,", "-1", "1e3", "²"])
def test_cuts_that_are_no_numbers_from_1_on_are_refused(tmp_path, run, cuts):
    write(tmp_path / "data" / "small", TOOLS, _queries(3))
    assert run("retrieval", "--k", cuts).exit_code == 2
