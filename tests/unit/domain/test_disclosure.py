from pathlib import Path

import pytest

from riglm.adapters.configuration.loading import Options, list_values, load
from riglm.domain.errors import InvalidInputError
from riglm.domain.schemas.changes import disclose, find_changes, merge_changes

YAML = """
downstream: {token: canary-token-0123456789}
mcpServers:
  a: {command: [srv, --token, canary], args: [--api-key=canary, plain], env: {KEY: canary, token: canary}}
  b: {url: "https://me:canary@h/p?k=canary", headers: {X: canary}}
  c: {url: "https://h", auth: {token: canary}}
"""


def test_every_value_is_shown_with_its_origin_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "riglm.yaml").write_text(YAML, "utf-8")
    configuration = load(Options(), environment={"RIGLM_NAMING": "none"}, directory=tmp_path)
    lines = {path: (value, source) for path, value, source in list_values(configuration)}
    file = str(tmp_path / "riglm.yaml")
    assert "canary" not in repr(lines)
    assert lines["naming"] == ("none", "RIGLM_NAMING")
    assert lines["downstream.token"] == ("***", file)
    assert lines["downstream.port"] == (8700, "default")
    assert lines["mcpServers.a.command"] == (["srv", "--token", "***"], file)
    assert lines["mcpServers.a.args"] == (["--api-key=***", "plain"], file)
    assert lines["mcpServers.a.env.KEY"] == ("***", file)
    assert lines["mcpServers.a.env.token"] == ("***", file)
    assert lines["mcpServers.b.url"] == ("https://***@h/p?***", file)
    assert lines["mcpServers.b.headers.X"] == ("***", file)
    assert lines["mcpServers.c.auth.token"] == ("***", file)
    assert "mcpServers.a.url" not in lines
    assert not any(path.startswith("upstream") for path in lines)


def test_the_url_of_a_store_is_shown_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "riglm.yaml").write_text('storage: {url: "${STORE}"}', "utf-8")
    environment = {"STORE": "postgresql://me:canary@host:5433/db?password=canary"}
    configuration = load(Options(), environment=environment, directory=tmp_path)
    lines = {path: value for path, value, _ in list_values(configuration)}
    assert "canary" not in repr(lines)
    assert lines["storage.url"] == "postgresql://***@host:5433/db?***"
    assert lines["storage.kind"] == "postgresql"


OF_VARIABLES = """
naming: ${NAMING}
filtering: {profile: "team-${WORD}", max_tools: "${NUMBER}", mode: "${MODE:-shadow}"}
storage: {path: "/data/${WORD}/riglm.db"}
mcpServers:
  a:
    command: npx
    args: [-y, "pkg-${WORD}", --header, "Authorization: Bearer ${WORD}", --log-level, "${SHORT}"]
    cwd: "/srv/${WORD}"
  b: {url: "https://${WORD}.example/${SHORT}/mcp"}
"""


def test_what_came_from_a_variable_is_covered_wherever_it_stands_and_known_to_be_a_secret(tmp_path: Path) -> None:
    (tmp_path / "riglm.yaml").write_text(OF_VARIABLES, "utf-8")
    environment = {"NAMING": "none", "WORD": "plainword", "NUMBER": "7", "SHORT": "qi"}
    settings = load(Options(), environment=environment, directory=tmp_path).settings
    shown = disclose(settings)
    assert "plainword" not in repr(shown)
    assert (shown["naming"], shown["filtering"]["max_tools"], shown["filtering"]["mode"]) == ("none", 7, "shadow")
    assert (shown["filtering"]["profile"], shown["storage"]["path"]) == ("team-***", "/data/***/riglm.db")
    args = ["-y", "pkg-***", "--header", "Authorization: ***", "--log-level", "***"]
    assert (shown["mcpServers"]["a"]["args"], shown["mcpServers"]["a"]["cwd"]) == (args, "/srv/***")
    assert shown["mcpServers"]["b"]["url"] == "https://***.example/qi/mcp"
    assert {"plainword", "qi"} <= set(settings.secrets())
    assert not {"none", "7", "shadow"} & set(settings.secrets())


def test_what_came_from_a_variable_stays_covered_when_something_else_changes(tmp_path: Path) -> None:
    (tmp_path / "riglm.yaml").write_text(OF_VARIABLES, "utf-8")
    environment = {"NAMING": "none", "WORD": "plainword", "NUMBER": "7", "SHORT": "qi"}
    settings = load(Options(), environment=environment, directory=tmp_path).settings
    shown = disclose(settings)
    assert find_changes(shown, shown) == {}
    changed = merge_changes(settings, find_changes({**shown, "naming": "prefix"}, shown))
    assert changed.naming == "prefix"
    assert disclose(changed) == {**shown, "naming": "prefix"}
    with pytest.raises(InvalidInputError, match="holds a mask"):
        find_changes({"filtering": {"profile": "group-***"}}, shown)
