import ast
from pathlib import Path
from unittest.mock import patch

import pytest

import riglm
from riglm.adapters.clients.places import list_candidates, own_command, unedited_files
from riglm.domain import client_support
from riglm.domain.client_support import FORMATS
from tests.unit.application.setup.shapes import SHAPES


def where(platform: str, **environment: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for candidate in list_candidates(None, platform=platform, environment=environment, home=Path("/h")):
        found.setdefault(candidate.client, []).append((candidate.base / candidate.pattern).as_posix())
    return found


def test_every_client_is_described_in_one_table() -> None:
    assert {shape.client for shape in SHAPES} == set(FORMATS)
    for file in Path(riglm.__file__).parent.rglob("*.py"):
        source = file.read_text("utf-8")
        if file != Path(client_support.__file__) and sum(f'"{name}"' in source for name in FORMATS) > 2:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Dict | ast.Tuple | ast.List | ast.Set):
                    parts = node.keys if isinstance(node, ast.Dict) else node.elts
                    named = {part.value for part in parts if isinstance(part, ast.Constant)} & set(FORMATS)
                    assert len(named) < 3, f"{file}:{node.lineno} is a second table of clients"


@pytest.mark.parametrize(
    ("platform", "client", "file"),
    [
        ("linux", "claude-desktop", "/h/.config/Claude/claude_desktop_config.json"),
        ("darwin", "claude-desktop", "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "claude-desktop", "/h/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", "vscode", "/h/.config/Code/User/mcp.json"),
        ("darwin", "vscode", "/h/Library/Application Support/Code/User/profiles/*/mcp.json"),
        ("win32", "vscode", "/h/AppData/Roaming/Code/User/mcp.json"),
        ("darwin", "zed", "/h/.config/zed/settings.json"),
        ("win32", "zed", "/h/AppData/Roaming/Zed/settings.json"),
        ("win32", "opencode", "/h/.config/opencode/opencode.jsonc"),
        ("win32", "kiro", "/h/.kiro/settings/mcp.json"),
        ("darwin", "crush", "/h/.config/crush/crush.json"),
        ("win32", "windsurf", "/h/.codeium/windsurf/mcp_config.json"),
    ],
)
def test_files_are_where_the_platform_has_them(platform: str, client: str, file: str) -> None:
    assert file in where(platform)[client]


def test_variables_that_move_files_are_followed() -> None:
    moved = where("linux", CODEX_HOME="/c", CLAUDE_CONFIG_DIR="/d", XDG_CONFIG_HOME="/x", CRUSH_GLOBAL_CONFIG="/r")
    assert moved["crush"] == ["/r/crush.json"]
    assert moved["codex"] == ["/c/config.toml"]
    assert moved["claude-code"] == ["/d/.claude.json"]
    assert moved["zed"] == ["/x/zed/settings.json"]
    assert where("win32", APPDATA="/a")["claude-desktop"] == ["/a/Claude/claude_desktop_config.json"]


def test_goose_files_are_where_the_platform_has_them() -> None:
    assert unedited_files("linux", {}, Path("/h")) == {"Goose": Path("/h/.config/goose/config.yaml")}
    assert unedited_files("win32", {"APPDATA": "/a"}, Path("/h")) == {
        "Goose": Path("/a/Block/goose/config/config.yaml")
    }


def started(executable: str, *files: str, on_path: str = "") -> tuple[str, ...]:
    found = {Path(word).name: word for word in on_path.split()}
    with (
        patch("shutil.which", found.get),
        patch.object(Path, "is_file", lambda file: str(file) in files),
        patch.object(Path, "samefile", lambda one, other: {str(one), str(other)} <= {*files}),
    ):
        return own_command(Path(executable))


def test_riglm_is_started_by_words_that_need_no_path_and_that_stay() -> None:
    tool = ("/h/.local/share/uv/tools/riglm/bin/riglm", "/h/.local/bin/riglm")
    assert started("/h/.local/share/uv/tools/riglm/bin/python", *tool, on_path=tool[1]) == (tool[1],)
    assert started("/v/bin/python", "/v/bin/riglm", on_path="/usr/bin/riglm") == ("/v/bin/riglm",)
    assert started("/v/bin/python") == ("/v/bin/python", "-m", "riglm")
    cache = "/h/.cache/uv/archive-v0/x1/bin/python"
    assert started(cache, on_path="/h/.local/bin/uvx") == ("/h/.local/bin/uvx", "riglm")
    assert started("/h/.cache/pipx/9a/bin/python", on_path="/usr/bin/pipx") == ("/usr/bin/pipx", "run", "riglm")
