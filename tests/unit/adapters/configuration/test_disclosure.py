from pathlib import Path

from riglm.adapters.configuration.disclosure import shown
from riglm.adapters.configuration.loading import Options, load

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
    lines = {path: (value, source) for path, value, source in shown(configuration)}
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
    lines = {path: value for path, value, _ in shown(configuration)}
    assert "canary" not in repr(lines)
    assert lines["storage.url"] == "postgresql://***@host:5433/db?***"
    assert lines["storage.kind"] == "postgresql"
