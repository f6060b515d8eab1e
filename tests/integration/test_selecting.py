"""riglm as a library, as agents use it."""

import asyncio
import gc
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from threadpoolctl import threadpool_info

from riglm import (
    USER_STORE,
    ConfigurationError,
    SelectorClosedError,
    ToolSelector,
    UnusableInputError,
    UnusableToolError,
)
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.ports import predictor
from tests.integration.past import TOOLS as PAST_TOOLS
from tests.integration.past import a_past
from tests.waiting import WAIT_SECONDS

PATIENCE = WAIT_SECONDS
THINGS = ("file", "issue", "song", "invoice", "flight", "recipe")
TOOLS = [
    {"name": f"{action}_{thing}", "description": f"{action} a {thing}", "inputSchema": {"type": "object"}}
    for thing in THINGS
    for action in ("create", "read", "update", "delete", "list", "share")
]
HABIT = ("share_song", "delete_recipe", "list_flight")


@pytest.fixture
def make():
    """Makes selectors that need no model and are closed at the end."""
    made = []

    def selector(tools=TOOLS, **options):
        made.append(ToolSelector(tools, **{"embedder": "static", "max_tools": 6, **options}))
        return made[-1]

    yield selector
    for each in made:
        each.close()


def teach(selector, words="the yearly ceremony", tools=HABIT, **session):
    for _ in range(2):
        with selector.session(**session) as working:
            working.select(words)
            for tool in tools:
                working.used(tool)


def test_a_selection_is_short_fits_the_words_and_holds_the_objects_that_were_given(make):
    selection = make().session().select("pay the invoice")
    assert len(selection) == len(selection.tools) == 6
    assert "update_invoice" in selection.names
    assert all(any(tool is given for given in TOOLS) for tool in selection)
    assert set(selection.names) | set(selection.hidden) == {tool["name"] for tool in TOOLS}
    assert selection.tokens_saved > selection.tokens > 0


def test_what_was_used_for_such_words_is_selected_from_then_on_and_the_reasons_say_why(make):
    selector = make()
    assert not set(HABIT) <= set(selector.session().select("get ready for the yearly ceremony").names)
    teach(selector)
    selection = selector.session().select("get ready for the yearly ceremony")
    assert set(HABIT) <= set(selection.names)
    assert all(selection.reasons[tool].rank <= 6 for tool in HABIT)
    assert selection.why(HABIT[0]).endswith("by prediction")
    assert selection.reasons[HABIT[0]].signals
    assert "and the list holds" in selection.why(next(iter(set(selection.hidden) - set(HABIT))))


def test_a_store_remembers_for_the_next_process_and_for_each_user_alone(make, tmp_path):
    store = tmp_path / "agent.db"
    with make(store=store) as first:
        teach(first, user="anna")
    later = make(store=store)
    assert set(HABIT) <= set(later.session(user="anna").select("prepare the yearly ceremony").names)
    assert not set(HABIT) <= set(later.session(user="ben").select("prepare the yearly ceremony").names)


def test_what_the_proxy_recorded_counts_where_the_users_store_is_shared(make, tmp_path, monkeypatch):
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path))
    with SqlAnalytics(f"sqlite:///{tmp_path / 'riglm.db'}") as store:
        store.record_many(a_past(time.time()))
    tools = [{"name": name, "description": "as one does"} for name in reversed(PAST_TOOLS)]
    used = {"write_file", "find_file", "move_file", "close_file", "read_issue"}  # 95 % of what sessions used
    assert used <= set(make(tools, store=USER_STORE).session().select().names)
    assert used != set(make(tools).session().select().names)


def test_a_session_with_a_key_goes_on_where_it_was(make):
    selector = make()
    with selector.session("conversation 7") as session:
        session.select("read a file")
        session.used("delete_recipe")
    assert selector.session("conversation 7").select().why("delete_recipe") == "used in this session"
    assert selector.session("conversation 8").select("read a file").why("delete_recipe") != "used in this session"


def test_pinned_tools_are_always_there_and_denied_ones_never_not_even_by_search(make):
    selector = make(pinned=["share_recipe"], denied=["*_file"])
    session = selector.session()
    selection = session.select("read a file")
    assert "share_recipe" in selection.names
    assert not any(name.endswith("_file") for name in (*selection.names, *selection.hidden))
    assert not any(each.name.endswith("_file") for each in session.search("read a file"))


def test_a_search_finds_what_was_not_selected_and_says_why(make):
    session = make().session()
    assert "list_flight" not in session.select("read a file").names
    found = session.search("list a flight", limit=3)
    assert found.found[0].name == "list_flight"
    assert found.tools[0] is next(tool for tool in TOOLS if tool["name"] == "list_flight")
    assert "words" in found.found[0].why
    assert len(found) <= 3
    session.used("list_flight")
    assert "list_flight" in session.select().names


def test_a_selection_that_could_not_wait_for_the_model_says_so(make, monkeypatch, tmp_path):
    (tmp_path / "riglm.yaml").write_text(
        "embedder: {start_deadline: 0.05, deadline: 0.05}\nstorage: {kind: memory}\n"
        "filtering: {coverage: 0.9, cold_start_limit: 6}\n"
    )
    may_go_on, embed = threading.Event(), HashingEmbedder.embed

    def hanging(self, texts):
        assert may_go_on.wait(PATIENCE)
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed", hanging)
    selector = make(config=tmp_path / "riglm.yaml")
    assert selector.session().select("read a file").reason.endswith("; not all inputs were available in time")
    may_go_on.set()
    sessions = (selector.session().select("read a file") for _ in range(600))
    assert any("at hand" not in each.reason for each in sessions)


async def test_whoever_awaits_a_selection_holds_up_no_event_loop(make, monkeypatch):
    may_go_on, went_on = threading.Event(), []
    embed = HashingEmbedder.embed

    def slowly(self, texts):
        went_on.append(may_go_on.wait(PATIENCE))
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed", slowly)
    async with make() as selector:
        asked = asyncio.create_task(selector.session().aselect("read a file"))
        await asyncio.sleep(0)
        may_go_on.set()  # never done, were the loop held up
        assert "read_file" in (await asked).names
        found = await selector.session().asearch("list a flight")
        assert found.found[0].name == "list_flight"
        assert (await selector.astatus())["embeddings"]["status"] == "ready"
    assert all(went_on)


def test_many_threads_may_select_and_tell_at_once(make):
    selector = make()

    def work(number):
        with selector.session(f"thread {number}") as session:
            for thing in THINGS:
                assert f"read_{thing}" in session.select(f"read the {thing}").names
                session.used(f"read_{thing}")
            return set(session.select().names)

    with ThreadPoolExecutor(8) as threads:
        assert all({f"read_{thing}" for thing in THINGS[-3:]} <= names for names in threads.map(work, range(16)))


def test_a_tool_that_nobody_has_is_told_in_the_log_and_ends_nobodys_work(make, caplog):
    session = make().session()
    with caplog.at_level(logging.WARNING, "riglm"):
        session.used("raed_file")
    assert "no tool is called 'raed_file', so nothing is learned: is it 'read_file'?" in caplog.text
    assert session.select("read a file").names


def test_a_tool_with_half_a_surrogate_pair_is_selected_found_and_learned(make, tmp_path):
    cut = {"name": "cut_\ud83d", "description": "cut a diamond \ud83d"}
    for _ in range(2):  # the second reads what the first stored
        with make([*TOOLS, cut], store=tmp_path / "agent.db") as selector:
            session = selector.session("\ud83d", user="\ud83d")
            assert cut in session.select("cut the diamond \ud83d")
            assert session.search("cut the diamond").tools[0] is cut
            session.used(cut["name"])


def test_a_closed_selector_says_so_and_closing_it_twice_is_nothing(make):
    selector = make()
    session = selector.session()
    session.select("read a file")
    selector.close()
    selector.close()
    calls = (session.select, lambda: session.used("read_file"), lambda: session.mark("read_file", relevant=True))
    for use in (*calls, selector.status, selector.__enter__):
        with pytest.raises(SelectorClosedError, match="is closed — fix: "):
            use()


def test_the_default_minimum_is_at_most_the_maximum():
    with ToolSelector(TOOLS, max_tools=2, embedder="static") as selector:
        assert len(selector.session().select("read a file").tools) <= 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tools": 0}, r"ToolSelector\(max_tools=...\): filtering.max_tools: .* — fix: "),
        ({"max_tools": 2, "min_tools": 3}, "filtering.max_tools"),
        ({"store": "a.db", "config": "riglm.yaml"}, "`store` and `config` are both given — fix: "),
        ({"config": "nowhere.yaml"}, "nowhere.yaml"),
        ({"predictor": "hybird"}, r"ToolSelector\(predictor=...\): predictor.kind: .* — fix: did you mean hybrid"),
        ({"denied": "read_file"}, r"ToolSelector\(denied=...\): 'read_file' is no list of names — fix: denied=\['read"),
        (
            {"pinned": "*_file"},
            r"ToolSelector\(pinned=...\): '\*_file' is no list of names — fix: pinned=\['\*_file'\]",
        ),
        ({"pinned": 5}, r"ToolSelector\(pinned=...\): 5 is no list of names"),
        ({"embedder": "statis"}, r"embedder.provider: no embedder is called 'statis' — fix: did you mean static"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once_with_the_argument_and_the_fix(options, words):
    with pytest.raises(ConfigurationError, match=words):
        ToolSelector(TOOLS, **options)
    with pytest.raises(UnusableToolError, match="fix: "):
        ToolSelector([*TOOLS, 42])


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (".", "cannot be used as a store — fix: name a file that you may write"),
        ("junk.db", "'.*junk.db' is a file of something else — fix: name a different one"),
        ("junk.db/agent.db", "agent.db' cannot be used as a store — fix: "),
        (5, "expected str, .* — fix: give the path of a file"),
        ("a\0b", "cannot be used as a store — fix: name a file"),
    ],
)
def test_a_store_that_can_be_none_is_refused_at_once_and_nothing_is_written(store, words, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    (home / "junk.db").write_text("notes of somebody")
    with pytest.raises(ConfigurationError, match=rf"ToolSelector\(store=...\): .*{words}"):
        ToolSelector(TOOLS, store=store)
    assert [(each.name, each.read_text()) for each in tmp_path.rglob("*") if each.is_file()] == [
        ("junk.db", "notes of somebody")
    ]


@pytest.mark.parametrize(("group", "argument"), [("predictors", "predictor"), ("embedders", "embedder")])
def test_a_plug_in_that_cannot_be_made_is_refused_at_once_with_the_fix(group, argument, monkeypatch):
    points = [
        EntryPoint("gone", "riglm_gone_package:Gone", f"riglm.{group}"),
        EntryPoint("broken", f"{__name__}:Broken", f"riglm.{group}"),
    ]
    monkeypatch.setattr(predictor, "entry_points", lambda group: EntryPoints(points).select(group=group))
    with pytest.raises(ConfigurationError, match=r"'gone' .* cannot be loaded: No module named .* — fix: repair or "):
        ToolSelector(TOOLS, **{argument: "gone"})
    with pytest.raises(ConfigurationError, match=r"'broken' does not take {}: no licence — fix: "):
        ToolSelector(TOOLS, **{argument: "broken"})


class Broken:
    def __init__(self):
        raise RuntimeError("no licence")


def test_a_mistake_in_a_call_is_told_with_its_place_and_the_fix(make):
    session = make().session()
    with pytest.raises(UnusableToolError, match=r"None is no tool .* — fix: "):
        session.used(None)
    for use, words in {
        lambda: session.select(5): r"select\(context=...\): 5 is no text — fix: ",
        lambda: session.search(None): r"search\(query=...\): None is no text",
        lambda: session.search("a file", limit=0): r"search\(limit=...\): 0 is no whole number above 0",
        lambda: session.used("read_file", seconds=float("nan")): r"used\(seconds=...\): nan is no number",
        lambda: make().session(7): r"session\(key=...\): 7 is no text",
        lambda: make().session(user=7): r"session\(user=...\): 7 is no text",
        lambda: make(name=None): r"ToolSelector\(name=...\): None is no text",
        lambda: make(TOOLS[0]): r"is no list of tools — fix: ",
        lambda: session.select(tools=5): r"5 is no list of tools — fix: ",
    }.items():
        with pytest.raises(UnusableInputError, match=words):
            use()


def test_a_configuration_file_rules_what_is_selected_and_starts_no_server(make, tmp_path):
    (tmp_path / "riglm.yaml").write_text(
        "mcpServers: {never: {command: this-is-never-started}}\n"
        f"storage: {{path: {tmp_path / 'agent.db'}}}\n"
        "filtering: {max_tools: 9, min_tools: 4, coverage: 0.9, denylist: [delete_*], cold_start_limit: 4}\n"
    )
    selection = ToolSelector(TOOLS, config=tmp_path / "riglm.yaml", embedder="static")
    with selection as selector:
        selected = selector.session().select("delete a file")
    assert len(selected) == 4
    assert not any(name.startswith("delete") for name in selected.names)
    assert (tmp_path / "agent.db").exists()


def test_nothing_of_the_process_is_changed_for_it(make):
    before = sys.getswitchinterval(), [each["num_threads"] for each in threadpool_info()]
    make().session().select("read a file")
    assert (sys.getswitchinterval(), [each["num_threads"] for each in threadpool_info()]) == before


UNCLOSED = """
from riglm import ToolSelector
tools = [{"name": f"tool_{number}"} for number in range(30)]
selector = ToolSelector(tools, store="agent.db", embedder="static")
session = selector.session()
session.select("anything")
session.used("tool_7", seconds=0.25)
"""


def test_what_was_told_is_stored_even_if_nobody_closes_anything(tmp_path):
    script = [sys.executable, "-W", "error", "-c", UNCLOSED]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE * 2, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with sqlite3.connect(tmp_path / "agent.db") as store:
        called = store.execute("SELECT tool, duration_ms, success FROM invocation").fetchall()
        ended = store.execute("SELECT transport, ended_at IS NOT NULL FROM session").fetchall()
    assert called == [("tool_7", 250.0, 1)]
    assert ended == [("library", 1)]


def test_a_selector_that_nobody_holds_any_more_ends_by_itself():
    before = set(threading.enumerate())
    selector = ToolSelector(TOOLS, embedder="static")
    selector.session().select("read a file")
    [thread] = [each for each in set(threading.enumerate()) - before if each.name == "riglm-selector"]
    del selector
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_importing_riglm_imports_nothing_of_others():
    words = "import sys; before = set(sys.modules); import riglm; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == ["riglm"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_is_told_to_make_its_own(make):
    session = make().session()
    session.select("read a file")
    child = os.fork()
    if child == 0:
        try:
            session.select("read a file")
        except SelectorClosedError as error:
            os._exit(0 if "make one in each process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_if_the_model_cannot_be_loaded_the_static_model_is_used_and_the_status_names_it(make, tmp_path, monkeypatch):
    (tmp_path / "riglm").touch()  # in place of the directory of the shared server, which may have the model in memory
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "riglm.yaml").write_text(
        "embedder: {start_deadline: 0.001}\nstorage: {kind: memory}\nfiltering: {coverage: 0.9, cold_start_limit: 6}\n"
    )
    selector = make(config=tmp_path / "riglm.yaml", embedder=None)
    session = selector.session()
    assert session.search("list a flight").found[0].name == "list_flight"
    assert session.select("list a flight").reason.endswith(" replaces riglm/all-MiniLM-L6-v2-int8")
    embeddings = selector.status()["embeddings"]
    assert (embeddings["provider"], embeddings["actual_provider"]) == ("fastembed", "static")
    assert embeddings["is_fallback_active"]
