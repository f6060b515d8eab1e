# ruff: noqa: E501  # files stand in one line each
import json
import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.application.setup import json_members, toml_tables
from riglm.application.setup.client_files import ClientFiles
from riglm.application.setup.init import SetupPlanner, install
from riglm.application.setup.json_members import FileNotEditableError
from riglm.application.setup.undo import plan_undo, undo
from riglm.cli.setup_access import setup_context
from riglm.domain.client_setup import ConfigLocation

JSON = ConfigLocation(client="vscode", file=Path("mcp.json"), path=("servers",))
TOML = ConfigLocation(client="codex", file=Path("config.toml"), path=("mcp_servers",))
STARTS = ("/opt/riglm", "run", "--config", "/home/me/it.yaml")
FILES = ClientFiles(lambda _: [], lambda _: None, environment={}, home=Path("/home/me"), platform="linux")

_names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8).filter(
    lambda name: name != "riglm"
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.characters(codec="utf-8"), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)
_servers = st.dictionaries(_names, _values, max_size=3) | st.fixed_dictionaries(
    {"command": st.just("sh"), "args": st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=3)},
    optional={"env": st.dictionaries(st.sampled_from("ABC"), st.text(max_size=6)), "note": _values},
)
_spaces = st.sampled_from(["", " ", "\n  ", "\r\n\t", " // a } comment\n", "/* { */", "\n\n"])


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A file in JSON with comments, spare commas and spaces anywhere, and the names of its servers."""
    names = draw(st.lists(_names, min_size=1, max_size=5, unique=True))

    def space() -> str:
        return draw(_spaces)

    def key(name: str) -> str:
        return json.dumps(name, ensure_ascii=draw(st.booleans()))

    def value(item: Any) -> str:
        if isinstance(item, dict):
            return members([(name, value(inner)) for name, inner in item.items()])
        return json.dumps(item, ensure_ascii=draw(st.booleans()))

    def members(pairs: list[tuple[str, str]]) -> str:
        parts = [f"{space()}{key(name)}{space()}:{space()}{written}{space()}" for name, written in pairs]
        return "{" + ",".join(parts) + ("," if parts and draw(st.booleans()) else "") + space() + "}"

    servers = members([(name, value(draw(_servers))) for name in names])
    others = [(name, value(draw(_values))) for name in draw(st.lists(_names, max_size=3, unique=True))]
    pairs = [(name, written) for name, written in others if name != "servers"]
    pairs.insert(draw(st.integers(0, len(pairs))), ("servers", servers))
    return ("\ufeff" if draw(st.booleans()) else "") + space() + members(pairs) + space(), names


@settings(max_examples=50)
@given(documents(), st.data())
def test_whatever_the_file_looks_like_only_the_servers_go_and_they_return_in_their_order(
    document: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, names = document
    moved = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    content = text.encode()
    before = json_members.parse(text.removeprefix("\ufeff"))
    after = FILES.with_riglm(JSON, content, moved, entry="riglm", starts=STARTS)
    said = json_members.parse(after.decode().removeprefix("\ufeff"))
    assert {**said, "servers": 0} == {**before, "servers": 0}
    left = {name: server for name, server in before["servers"].items() if name not in moved}
    assert {name: server for name, server in said["servers"].items() if name != "riglm"} == left
    back = FILES.without_riglm(JSON, after, "riglm", content, moved)
    returned = json_members.parse(back.decode().removeprefix("\ufeff"))
    assert returned == before
    assert [*returned["servers"]] == [*before["servers"]]
    assert back.startswith(b"\xef\xbb\xbf") is content.startswith(b"\xef\xbb\xbf")


@settings(max_examples=50)
@given(documents())
def test_undo_after_init_is_the_file_to_the_byte(document: tuple[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        file = home / ".config/Code/User/mcp.json"
        file.parent.mkdir(parents=True)
        file.write_bytes(document[0].encode())
        environment = {"HOME": directory, "RIGLM_DATA_DIR": str(home / "data"), "PATH": os.environ["PATH"]}
        with mock.patch.dict(os.environ, environment, clear=True):
            context = setup_context()
            (plan,) = SetupPlanner(context).plans((), None)
            assert not plan.fault
            install(context, plan)
            assert (file.read_bytes() != document[0].encode()) is bool(plan.moves)
            for each in plan_undo(context, (), None):
                undo(context, each)
            assert file.read_bytes() == document[0].encode()
            assert [each.name for each in (home / "data").glob("**/*") if each.is_file()] == []


SPELLINGS = {
    "keys of one table": '[mcp_servers]\na = { command = "sh" }\nb.command = "sh"\nb.args = ["]", "#"]\n\n[x]\ny = 1\n',
    "dotted from the top": 'mcp_servers.a.command = "sh"\nx = """\n[mcp_servers.a]\n"""\nmcp_servers.b = {url = "http://h"}\n',
    "apart": '[mcp_servers.a]\ncommand = "sh"\n[x]\ny = 1\n# c\n[mcp_servers.b]\nurl = "http://h"\n[mcp_servers.a.env]\nK = "v"',
    "with one between that stays": '[mcp_servers.a]\ncommand = "sh"\n\n[mcp_servers.s]\ncommand = "sh" # it\n[mcp_servers.b]\nurl = "http://h"',
    "quoted, with other line ends": '[ "mcp_servers" . \'a\' ]\r\ncommand = \'sh\'\r\n\r\n[mcp_servers.b]\r\ncommand = "s\\"h"\r\n',
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_tables_go_and_return_in_their_order_however_they_are_spelt(text: str) -> None:
    content = text.encode()
    before = tomllib.loads(text)
    for moved in (["a"], ["b"], ["a", "b"]):
        after = FILES.with_riglm(TOML, content, moved, entry="riglm", starts=STARTS, variables=["K"])
        servers = tomllib.loads(after.decode())["mcp_servers"]
        assert set(servers) == {"riglm", *before["mcp_servers"]} - set(moved)
        wanted = {"command": STARTS[0], "args": list(STARTS[1:]), "env_vars": ["K"], "required": True}
        assert servers["riglm"] == wanted
        back = tomllib.loads(FILES.without_riglm(TOML, after, "riglm", content, moved).decode())
        assert back == before
        assert (b"\r\n" in after) is (b"\r\n" in content)


@pytest.mark.parametrize(
    "text", ['mcp_servers = { a = { command = "sh" } }', '[mcp_servers.a]\ncommand = "sh"\n[mcp_servers.a]\n', "= 1"]
)
def test_a_table_that_cannot_be_taken_out_alone_is_left_with_a_word(text: str) -> None:
    with pytest.raises(FileNotEditableError, match=r"one value|not TOML"):
        FILES.with_riglm(TOML, text.encode(), ["a"], entry="riglm", starts=STARTS)


def test_comments_and_blank_lines_between_tables_stay() -> None:
    text = '# top\n[mcp_servers.a]\ncommand = "sh" # it\n\n# about b\n[mcp_servers.b]\ncommand = "sh"\n\n# end\n[x]\n'
    found = toml_tables.replace_entries(text, ("mcp_servers",), ["a"], ("riglm", {"command": "r"}))
    assert (
        found
        == '# top\n[mcp_servers.riglm]\ncommand = "r"\n\n# about b\n[mcp_servers.b]\ncommand = "sh"\n\n# end\n[x]\n'
    )


DEFERRING = {
    "its own table": 'a = 1\n\n[mcp_servers.riglm]\ncommand = "sh" # c\n\n[mcp_servers.riglm.env]\nK = "v"\n',
    "without a last line end": '[mcp_servers.riglm]\ncommand = "sh"',
    "with other line ends": '[features]\nx = true # m\n\n[mcp_servers.riglm]\r\ncommand = "sh"\r\n',
    "a key of one table": '[mcp_servers]\nriglm = { command = "sh" }\nb.command = "sh" # c\n',
    "dotted keys": '[mcp_servers]\nriglm.command = "sh"\nriglm.args = ["]"]\n\n[x]\ny = 1\n',
    "another surface left out": '[mcp_servers.riglm]\ncommand = "sh"\nomit_tools_from = [\n  "direct", # mine\n]\n',
}


@pytest.mark.parametrize("text", DEFERRING.values(), ids=DEFERRING)
def test_codex_does_not_defer_the_tools_of_riglm_and_programs_keep_them(text: str) -> None:
    content, before = text.encode(), tomllib.loads(text)
    on = FILES.with_preloading(TOML, content, "riglm")
    left_out = [*before["mcp_servers"]["riglm"].get("omit_tools_from", []), "deferred"]
    entry = {**before["mcp_servers"]["riglm"], "omit_tools_from": left_out}
    assert tomllib.loads(on.decode()) == {**before, "mcp_servers": {**before["mcp_servers"], "riglm": entry}}
    assert FILES.with_preloading(TOML, on, "riglm") == on
    assert (b"\r\n" in on) is (b"\r\n" in content)
    assert on.count(b"# c") == content.count(b"# c")
    off = FILES.without_preloading(TOML, on, ["riglm"], content)
    assert tomllib.loads(off.decode()) == before
    assert off.count(b"# c") == content.count(b"# c")


COPILOT = ConfigLocation(client="copilot", file=Path("mcp-config.json"), path=("mcpServers",))


@pytest.mark.parametrize(
    "entry",
    [
        '{"command": "sh", /* keep me */ "args": []}',
        '{\n    // only x\n    "command": "sh"\n  }',
        '{"command": "sh", "deferTools": "always"}',
        '{"deferTools": "always", "command": "sh"}',
    ],
)
def test_members_of_the_entry_are_set_and_restored_and_its_comments_stay(entry: str) -> None:
    content = f'{{\n  "mcpServers": {{\n  "riglm": {entry}\n  }}\n}}\n'.encode()
    on = FILES.with_preloading(COPILOT, content, "riglm")
    assert b'"deferTools": "never"' in on
    assert on.count(b"//") + on.count(b"/*") == content.count(b"//") + content.count(b"/*")
    assert FILES.with_preloading(COPILOT, on, "riglm") == on
    off = FILES.without_preloading(COPILOT, on, ["riglm"], content)
    assert json_members.parse(off.decode()) == json_members.parse(content.decode())
    assert off.count(b"//") + off.count(b"/*") == content.count(b"//") + content.count(b"/*")
