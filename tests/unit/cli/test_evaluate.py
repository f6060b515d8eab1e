import json
import sys

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.cli import main as entrance
from riglm.cli.main import app
from riglm.domain.invocation import DiscoveryMethod
from tests.records import a_session, an_exposure, an_invocation

TOOLS = [{"name": name, "description": f"{name} a file", "server": "files"} for name in ("read", "write", "find")]
SEQUENCES = {"dataset", "side", "predictor", "calls", "new_calls", "p50_ms", "p99_ms"} | {
    f"{kind}@{cut}" for kind in ("h", "new") for cut in (1, 5, 10, 15)
}


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def options(tmp_path, data):
    config = tmp_path / "riglm.yaml"
    config.write_text("embedder: {provider: static}\n")
    return ["--data", str(data), "--config", str(config), "--cache", str(tmp_path / "vectors.sqlite")]


def _write(directory, sessions, tools=TOOLS):
    (directory / "dev").mkdir(parents=True)
    for path, lines in ((directory / "tools.jsonl", tools), (directory / "dev" / "sessions.jsonl", sessions)):
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def _sessions(count):
    return [{"id": str(number), "calls": ["find", "read", "write", "read"]} for number in range(count)]


@pytest.fixture
def ended(monkeypatch, capsys):
    """What a command that failed leaves: its exit code, stdout and stderr."""

    def ended(*arguments):
        monkeypatch.setattr(sys, "argv", ["riglm", "evaluate", *arguments])
        with pytest.raises(SystemExit) as left:
            entrance.main()
        return left.value.code, *capsys.readouterr()

    return ended


def _evaluate(*arguments):
    return CliRunner().invoke(app, ["evaluate", *arguments])


def test_sequences_tell_the_figures_of_all_predictors(data, options):
    _write(data / "small", _sessions(30))
    done = _evaluate("sequences", *options, "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert {(row["dataset"], row["side"]) for row in rows} == {("small", "dev")}
    assert {row["predictor"] for row in rows} >= {"hybrid", "frequency", "sequence"}
    for row in rows:
        assert set(row) >= SEQUENCES
        assert (row["calls"], row["new_calls"]) == (90, 60)
        assert row["h@5"] == row["new@5"] == 100.0


def test_sequences_look_at_the_lengths_and_the_predictors_that_were_asked_for(data, options):
    _write(data / "small", _sessions(30))
    (row,) = json.loads(_evaluate("sequences", *options, "--json", "--k", "2", "--predictor", "frequency").stdout)
    assert {name for name in row if "@" in name} == {"h@2", "new@2"}
    assert row["predictor"] == "frequency"


def test_the_protocol_is_told_and_online_starts_empty(data, options):
    _write(data / "small", _sessions(30))
    (row,) = json.loads(
        _evaluate("sequences", *options, "--json", "--protocol", "online", "--predictor", "sequence").stdout
    )
    assert row["protocol"] == "online"
    assert row["calls"] == 90


def test_the_table_of_sequences_names_each_predictor(data, options):
    _write(data / "small", _sessions(30))
    table = _evaluate("sequences", *options).stdout
    assert "hybrid" in table
    assert "frequency" in table


def test_a_set_with_few_sessions_is_left_out_and_named(data, options):
    _write(data / "few", _sessions(3))
    _write(data / "more", _sessions(30))
    done = _evaluate("sequences", *options, "--json", "--predictor", "frequency")
    assert done.exit_code == 0
    assert [row["dataset"] for row in json.loads(done.stdout)] == ["more"]
    assert "few: left out, 3 sessions of two calls or more are too few" in done.stderr


def test_the_directory_of_one_set_is_measured_as_that_set(data, options):
    _write(data, _sessions(30))
    (row,) = json.loads(_evaluate("sequences", *options, "--json", "--predictor", "frequency").stdout)
    assert row["dataset"] == "data"


def test_a_set_and_a_predictor_named_twice_are_measured_once(data, options):
    _write(data / "small", _sessions(30))
    twice = ["small", "small/", "--predictor", "frequency", "--predictor", "frequency"]
    assert len(json.loads(_evaluate("sequences", *options, "--json", *twice).stdout)) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"id": "x", "calls": ["find", "erase"]}, "unknown tool 'erase'"),
        ({"id": "x", "calls": "find"}, "'calls' must be a list"),
        ({"calls": ["find"]}, "'id' must be a text"),
        ({"id": "0", "calls": ["find"]}, "as on line 1"),
        ("{", "this is not JSON"),
    ],
)
def test_wrong_data_exits_with_2_and_names_file_line_and_fix(data, options, ended, line, said):
    _write(data / "small", [*_sessions(1), line])
    code, out, told = ended("sequences", *options, "--json")
    assert (code, out) == (2, "")
    assert "dev/sessions.jsonl:2" in told
    assert said in told
    assert "— fix: " in told


@pytest.mark.parametrize("command", ["retrieval", "usage", "sequences"])
def test_a_directory_without_sets_exits_with_2_and_is_named(data, options, ended, command):
    for _ in range(2):
        code, out, told = ended(command, *options, "--json")
        assert (code, out) == (2, "")
        assert str(data) in told
        data.mkdir(exist_ok=True)


@pytest.mark.parametrize("command", ["retrieval", "usage", "sequences"])
def test_sets_that_are_all_too_small_are_an_error_and_no_empty_success(data, options, ended, command):
    _write(data / "small", [])
    (data / "small" / "dev" / "queries.jsonl").write_text("")
    code, out, told = ended(command, *options, "--json")
    assert (code, out) == (2, "")
    assert "small: left out" in told
    assert "— fix: " in told


@pytest.mark.parametrize("command", ["retrieval", "usage", "sequences"])
def test_an_unknown_predictor_exits_with_2_before_data_is_read_and_the_known_are_named(options, command):
    done = _evaluate(command, *options, "--predictor", "oracle")
    assert done.exit_code == 2
    assert "--predictor" in done.stderr
    assert "oracle" in done.stderr
    assert "hybrid" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--coverage", "2"),
        ("--coverage", "nan"),
        ("--limit", "0"),
        ("--limit", "-1"),
        ("--protocol", "guess"),
        ("--k", "0"),
        ("--k", "5,"),
        ("--k", "9" * 5000),
    ],
)
def test_options_out_of_bounds_are_wrong_use(data, options, wrong):
    _write(data / "small", _sessions(30))
    assert _evaluate("sequences", *options, *wrong).exit_code == 2


def test_history_of_a_store_with_nothing_in_it_is_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    assert "nothing recorded yet" in _evaluate("history").stdout
    assert json.loads(_evaluate("history", "--json").stdout) == []


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An open store in the data directory of riglm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "recorded"))
    (tmp_path / "recorded").mkdir()
    with SqlAnalytics(f"sqlite:///{tmp_path / 'recorded' / 'riglm.db'}") as opened:
        yield opened


def _large(count):
    """Return tools of ten servers, and sessions that use three of them and sometimes another one."""
    words = {"type": "object", "properties": {"path": {"type": "string", "description": "where it is " * 20}}}
    tools = [
        {"name": f"s{server}-{number}", "description": "does something", "server": f"s{server}", "input_schema": words}
        for server in range(10)
        for number in range(10)
    ]
    sessions = [
        {"id": str(number), "calls": ["s0-0", "s0-1", "s0-0", "s1-0", f"s2-{number % 10}"]} for number in range(count)
    ]
    return sessions, tools


def test_cost_prices_the_sessions_of_a_set_with_what_was_learned_before(data, options):
    _write(data / "large", *_large(40))
    rows = _costs("--data", str(data), "--config", options[3], "--learn", "20", "--judge", "10")
    no_proxy, search, riglm = rows
    assert [row["arm"] for row in rows] == ["no_proxy", "host_search", "riglm"]
    assert (no_proxy["price"], no_proxy["requests"], no_proxy["first_list"]) == (1.0, 6.0, 100)
    assert (search["requests"], search["first_list"]) == (10.0, None)
    assert riglm["price"] < search["price"] < 1
    assert 3 <= riglm["first_list"] < 20
    assert 60 <= riglm["listed"] <= 100
    assert 6 <= riglm["requests"] <= 8
    agent = _costs("--data", str(data), "--config", options[3], "--learn", "20", "--judge", "10", "--coding-agent")[2]
    assert riglm["price"] < agent["price"] < 1
    assert agent["requests"] == riglm["requests"]


def test_cost_limits_the_catalog_to_the_servers_that_are_used_most(data, options):
    _write(data / "large", *_large(10))
    rows = _costs("--data", str(data), "--config", options[3], "--tools", "25", "--learn", "0", "--judge", "5")
    assert [row["tools"] for row in rows] == [20, 20, 20]
    assert rows[0]["requests"] == 5.0  # a call of another server is left out


def test_cost_of_a_small_set_without_anything_learned_is_that_of_no_proxy(data, options):
    _write(data / "small", _sessions(3))
    rows = _costs("--data", str(data), "--config", options[3], "--learn", "0", "--judge", "3")
    assert [(row["price"], row["first_list"], row["listed"]) for row in rows[::2]] == [(1.0, 3, 100.0), (1.0, 3, None)]


def test_cost_without_data_prices_what_was_recorded_by_mode(store):
    session, shadowed = a_session(), a_session(started_at=2000.0)
    short = {"hidden": ("b", "c", "d"), "tokens_shown": 1_200, "tokens_hidden": 3_000, "tokens_own": 200}
    store.record_many(
        [
            session,
            an_exposure(session, "a", mode="enforce", surface="dynamic", **short),
            an_invocation(session, "a", found=DiscoveryMethod.LISTED),
            shadowed,
            an_exposure(shadowed, "a", mode="shadow", surface="dynamic", **short),
            an_invocation(shadowed, "b", found=DiscoveryMethod.LISTED),
        ]
    )
    rows = _costs()
    assert [(row["mode"], row["arm"]) for row in rows[:3]] == [
        ("enforce", "no_proxy"),
        ("enforce", "host_search"),
        ("enforce", "riglm"),
    ]
    assert rows[2]["price"] == round(11_082.5 / 14_862.5, 3)
    assert [(row["requests"], row["first_list"], row["listed"]) for row in (rows[2], rows[5])] == [
        (2.0, 1.0, 100.0),
        (3.0, 1.0, 0.0),
    ]
    assert json.loads(CliRunner().invoke(app, ["stats", "--json"]).stdout)["exposures"][0]["priced"] == {
        "sessions": 1,
        "price": None,  # of one session
        "price_of_search": None,
    }


def test_cost_uses_the_configured_prices(store, tmp_path):
    session = a_session()
    short = {"hidden": ("b",), "tokens_shown": 1_000, "tokens_hidden": 1_000}
    shown = an_exposure(session, "a", mode="enforce", surface="dynamic", **short)
    store.record_many([session, shown, an_invocation(session, "a")])
    (tmp_path / "riglm.yaml").write_text("prices: {preset: uncached, output: 0}\n")
    assert _costs()[2]["price"] == round((7_000 + 7_450) / (8_000 + 8_450), 3)
    assert _costs("--coding-agent")[2]["price"] == round((21_000 + 23_000) / (22_000 + 24_000), 3)


def _costs(*arguments):
    done = _evaluate("cost", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_cost_says_what_to_do_where_nothing_is_recorded(store):
    assert "give --data" in _evaluate("cost").stdout
    assert _costs() == []


@pytest.mark.parametrize("wrong", [("--tools", "0"), ("--judge", "0"), ("--days", "1", "--since", "2026-01-01")])
def test_options_of_cost_that_mean_nothing_are_wrong_use(store, wrong):
    assert _evaluate("cost", *wrong).exit_code == 2


def test_a_set_without_sessions_of_the_tools_is_refused_with_the_way_out(data, ended):
    _write(data / "small", _sessions(3))
    code, _, told = ended("cost", "--data", str(data), "--tools", "2")
    assert code == 2
    assert "a larger --tools" in told
    code, _, told = ended("cost", "--data", str(data), "--learn", "3")
    assert code == 2
    assert "small: left out" in told
    assert "a smaller --learn" in told
