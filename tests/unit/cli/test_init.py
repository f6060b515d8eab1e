import errno
import json
import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.presence import require_upstreams
from riglm.application.setup.init import SetupPlanner, install
from riglm.cli.config import app as check_app
from riglm.cli.config import enforce, shadow
from riglm.cli.init import init, undo
from riglm.cli.learning_from import find_proxies
from riglm.cli.setup_access import installations, riglm_entries, setup_context
from riglm.domain.client_setup import starts_riglm
from riglm.domain.errors import ConfigurationError, ConflictError, UnusableInputError
from tests.unit.application.setup.shapes import CLAUDE_CODE, CODEX, COPILOT, CURSOR, QWEN, SHAPES, WINDSURF, Shape

runner = CliRunner()
app = typer.Typer()  # these alone: to build all commands takes longer than to run one
for command in (init, undo, enforce, shadow):
    app.command()(command)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "RIGLM_DATA_DIR",
        "CODEX_HOME",
        "CLAUDE_CONFIG_DIR",
        "CRUSH_GLOBAL_CONFIG",
    ):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "work")
    return home


def put(home: Path, shape: Shape) -> Path:
    file = home / shape.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(shape.content)
    return file


def done(*words: str) -> Result:
    result = runner.invoke(app, [*words, "--yes"])
    assert result.exit_code == 0, result.output
    return result


def told(*words: str) -> Any:
    result = runner.invoke(app, [*words, "--json"])
    return json.loads(result.stdout)


def read(file: Path) -> dict[str, Any]:
    """A parser of our own for the test: comments on lines of their own or at the end, and spare commas."""
    return read_content(file, file.read_bytes())


def read_content(file: Path, content: bytes) -> dict[str, Any]:
    text = content.decode("utf-8-sig")
    if file.suffix == ".toml":
        return tomllib.loads(text)
    text = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda found: found[1] or "", text, flags=re.DOTALL)
    found: dict[str, Any] = json.loads(re.sub(r",(\s*[}\]])", r"\1", text))
    return found


def servers_in(file: Path) -> dict[str, Any]:
    values = read(file)
    keys = ("mcpServers", "servers", "mcp_servers", "mcp", "context_servers")
    return next(values[key] for key in keys if key in values)  # type: ignore[no-any-return]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.client)
def test_servers_go_behind_riglm_and_return_to_the_byte(home: Path, shape: Shape) -> None:
    file = put(home, shape)
    file.chmod(0o640)
    before = read(file)
    result = done("init")
    (place,) = told("init")["places"]
    configuration = Path(place["configuration"])
    entries = servers_in(file)
    assert set(entries) == {"riglm", *shape.stays}
    started = entries["riglm"]["command"]
    words = started if isinstance(started, list) else [started, *entries["riglm"]["args"]]
    assert words[-3:] == ["run", "--config", str(configuration)]
    assert Path(words[0]).is_absolute()
    ours = yaml.safe_load(configuration.read_text("utf-8"))
    assert ours["filtering"] == {"mode": "shadow"}
    assert [name.replace(" ", "-") for name in shape.goes] == list(ours["mcpServers"])
    assert configuration.stat().st_mode & 0o777 == 0o600
    assert len(load(Options(config=configuration)).settings.upstream_specs()) == len(shape.goes)
    after = read(file)
    key = next(key for key in after if after[key] == entries)
    assert {**after, key: 0} == {**before, key: 0}
    for secret in ("ghp_0123456789", "sk-live-0123", "k9-literal-key", "tok-ABCDEF"):
        assert secret not in result.output
    once = (file.read_bytes(), configuration.read_bytes())
    done("init")
    assert (file.read_bytes(), configuration.read_bytes()) == once
    done("undo")
    assert file.read_bytes() == shape.content
    assert file.stat().st_mode & 0o777 == 0o640
    assert not configuration.exists()
    assert installations() == ()


def test_timeouts_of_the_client_count_behind_riglm_and_return_with_undo(home: Path) -> None:
    text = (
        '[mcp_servers.slow]  # starts a database\ncommand = "sh"\n'
        "startup_timeout_ms = 120_000\ntool_timeout_sec = 3600\n"
        '[mcp_servers.fast]\ncommand = "sh"\nstartup_timeout_sec = 20.5\n'
    )
    file = put(home, Shape("codex", Path(".codex/config.toml"), text.encode(), ()))
    done("init")
    (made,) = installations()
    servers = load(Options(config=made.configuration)).settings.upstream_specs()
    assert {spec.name: dict(spec.timeouts) for spec in servers} == {
        "slow": {"initialize": 120, "list": 120, "call": 3600},
        "fast": {"initialize": 20.5, "list": 20.5},
    }
    entry = servers_in(file)["riglm"]
    assert (entry["startup_timeout_sec"], entry["tool_timeout_sec"]) == (120, 3600)
    done("undo")
    assert file.read_bytes() == text.encode()


def test_goose_is_reported_with_the_lines_to_write(home: Path) -> None:
    file = home / ".config" / "goose" / "config.yaml"
    file.parent.mkdir(parents=True)
    builtin = "extensions:\n  developer: {type: builtin, name: developer, enabled: true}\n"
    file.write_text(builtin)
    assert "Goose" not in runner.invoke(app, ["init"]).output
    file.write_text(builtin + "  files: {type: stdio, name: files, cmd: npx, args: [-y, files]}  # mine\n")
    content = file.read_bytes()
    lines = runner.invoke(app, ["init"]).output.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("Goose: ~/.config/goose/config.yaml"))
    written = yaml.safe_load("\n".join(lines[at + 1 : at + 3]))
    assert starts_riglm([written["cmd"], *written["args"]])
    assert written["args"][-4:] == ["run", "--", "COMMAND", "ARGUMENT"]
    assert file.read_bytes() == content
    file.write_text(
        builtin + f"  files: {{type: stdio, name: files, cmd: riglm, args: {json.dumps(written['args'])}}}\n"
    )
    assert "Goose" not in runner.invoke(app, ["init"]).output


PRELOADED = {
    "codex": {"required": True, "omit_tools_from": ["deferred"]},
    "qwen": {"alwaysLoadTools": True},
    "copilot": {"tools": ["*"], "deferTools": "never"},
}


@pytest.mark.parametrize("shape", [CODEX, QWEN, COPILOT], ids=lambda shape: shape.client)
def test_clients_that_defer_tools_load_those_of_riglm_while_it_filters(home: Path, shape: Shape) -> None:
    file = put(home, shape)
    done("init")
    installed = file.read_bytes()
    assert [each.may_defer for each in riglm_entries()] == [True]
    enforced = told("enforce")
    assert [each.may_defer for each in riglm_entries()] == [False]
    assert enforced["clients"] == [{"client": shape.client, "file": str(file), "trouble": None}]
    assert servers_in(file)["riglm"].items() >= PRELOADED[shape.client].items()
    preloaded = file.read_bytes()
    assert told("enforce")["clients"] == []
    done("init")
    assert file.read_bytes() == preloaded
    assert len(told("shadow", "--dry-run")["clients"]) == 1
    assert file.read_bytes() == preloaded
    assert len(told("shadow")["clients"]) == 1
    assert file.read_bytes() == installed
    told("enforce")
    (made,) = installations()
    assert set(made.servers) == set(shape.goes)
    done("undo")
    assert file.read_bytes() == shape.content
    assert installations() == ()


@pytest.mark.parametrize("edited_after", [0, 1, 3])
def test_undo_leaves_no_setting_for_riglm_in_a_file_that_was_changed_since(home: Path, edited_after: int) -> None:
    file = put(home, CODEX)
    done("init")
    later = '\n[tui]\ntheme = "x"\n'
    for number, mode in enumerate(["enforce", "shadow", "enforce", ""]):
        if number == edited_after:
            file.write_text(file.read_text("utf-8") + later, "utf-8")
        if mode:
            assert told(mode)["clients"] == [{"client": "codex", "file": str(file), "trouble": None}]
    done("undo")
    assert read(file) == tomllib.loads(CODEX.text + later)
    assert installations() == ()


def test_references_stay_references_and_clients_that_keep_variables_back_are_told_to_pass_them(home: Path) -> None:
    for shape in (CLAUDE_CODE, CURSOR, CODEX):
        put(home, shape)
    done("init")
    found = {
        name: yaml.safe_load((home / ".config/riglm" / f"{name}.yaml").read_text("utf-8"))["mcpServers"]
        for name in ("claude-code", "cursor", "codex")
    }
    assert found["claude-code"]["github"]["env"] == {"GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_TOKEN:-}"}
    assert found["claude-code"]["docs"]["url"] == "${DOCS_URL:-https://docs.example.com}/mcp"
    assert found["cursor"]["search"]["headers"] == {"Authorization": "Bearer ${SEARCH_KEY:-}"}
    assert found["cursor"]["postgres"]["args"] == ["-c", "pg", f"{home}/db"]
    assert found["codex"]["figma"]["headers"] == {"X-Region": "eu", "Authorization": "Bearer ${FIGMA_TOKEN:-}"}
    assert "GITHUB_TOKEN" not in json.dumps(servers_in(home / CLAUDE_CODE.file)["riglm"])
    wanted = {"PGPASSWORD": "${env:PGPASSWORD}", "SEARCH_KEY": "${env:SEARCH_KEY}"}
    assert servers_in(home / CURSOR.file)["riglm"]["env"] == wanted
    assert servers_in(home / CODEX.file)["riglm"]["env_vars"] == ["FIGMA_TOKEN"]


def test_what_was_changed_since_stays_and_the_servers_return(home: Path) -> None:
    claude, codex = put(home, CLAUDE_CODE), put(home, CODEX)
    done("init")
    said = json.loads(claude.read_text("utf-8"))  # Claude Code writes its file anew at every start
    said["numStartups"] += 1
    said["mcpServers"]["later"] = {"type": "stdio", "command": "sh"}
    claude.write_text(json.dumps(said, indent=2), "utf-8")
    with codex.open("a", encoding="utf-8") as file:
        file.write('\n[mcp_servers.later]\ncommand = "sh"\n')
    result = done("undo")
    assert "keeps those changes" in result.output
    wanted = json.loads(CLAUDE_CODE.text)
    wanted["numStartups"] += 1
    wanted["mcpServers"]["later"] = {"type": "stdio", "command": "sh"}
    assert json.loads(claude.read_text("utf-8")) == wanted
    assert tomllib.loads(codex.read_text("utf-8")) == tomllib.loads(CODEX.text + '[mcp_servers.later]\ncommand = "sh"')
    assert list(home.glob(".config/riglm/*")) == []


def test_a_server_that_the_client_gets_later_goes_behind_riglm_with_the_next_init(home: Path) -> None:
    file = put(home, WINDSURF)
    done("init")
    text = file.read_text("utf-8")
    added = text.replace('{"mcpServers":{', '{"mcpServers":{"new":{"command":"sh","env":{"A":"${env:NEW_KEY}"}},')
    file.write_text(added, "utf-8")
    configuration = home / ".config/riglm/windsurf.yaml"
    configuration.write_text(configuration.read_text("utf-8") + "# mine\nnaming: on_collision\n", "utf-8")
    done("init")
    ours = configuration.read_text("utf-8")
    assert list(yaml.safe_load(ours)["mcpServers"]) == ["new", "figma", "git"]
    assert "# mine\nnaming: on_collision\n" in ours
    entries = servers_in(file)
    assert set(entries) == {"riglm", "off"}
    assert entries["riglm"]["env"] == {"FIGMA": "${env:FIGMA}", "NEW_KEY": "${env:NEW_KEY}"}
    result = done("undo")
    assert servers_in(file) == {**servers_in_text(added), **servers_in_text(WINDSURF.text)}
    assert "it is kept as windsurf.undone.yaml" in result.output
    assert "# mine" in (home / ".config/riglm/windsurf.undone.yaml").read_text("utf-8")


def servers_in_text(text: str) -> dict[str, Any]:
    servers: dict[str, Any] = json.loads(text)["mcpServers"]
    servers.pop("riglm", None)
    return servers


def test_a_name_that_is_behind_riglm_with_another_definition_stays_where_it_is(home: Path) -> None:
    file = put(home, CURSOR)
    done("init")
    said = read(file)
    said["mcpServers"]["postgres"] = {"command": "sh", "args": ["another"]}
    file.write_text(json.dumps(said), "utf-8")
    (place,) = told("init")["places"]
    assert place["changes"] is False
    assert {stay["name"] for stay in place["stays"]} == {"postgres", "here"}


def test_nobody_is_asked_where_there_is_no_terminal_and_nothing_is_written(home: Path) -> None:
    file = put(home, CURSOR)
    result = runner.invoke(app, ["init"])
    assert result.exit_code == 3
    assert "servers that move" in result.output
    assert '"postgres": {' not in result.output
    assert '-        "postgres": {' in runner.invoke(app, ["init", "--diff"]).output
    assert runner.invoke(app, ["init", "--dry-run"]).exit_code == 0
    assert told("init")["done"] is False
    assert file.read_bytes() == CURSOR.content
    assert not (home / ".config/riglm").exists()
    done("init")
    written = file.read_bytes()
    assert runner.invoke(app, ["undo"]).exit_code == 3
    assert runner.invoke(app, ["undo", "--dry-run"]).exit_code == 0
    assert file.read_bytes() == written


def test_a_symbolic_link_stays_one_and_one_client_is_left_alone_when_another_is_named(home: Path) -> None:
    dotfiles = home / "dotfiles.json"
    dotfiles.write_bytes(CURSOR.content)
    (home / ".cursor").mkdir()
    (home / CURSOR.file).symlink_to(dotfiles)
    codex = put(home, CODEX)
    done("init", "--client", "cursor")
    assert (home / CURSOR.file).is_symlink()
    assert dotfiles.read_bytes() != CURSOR.content
    assert codex.read_bytes() == CODEX.content
    done("init")
    done("undo", "--client", "cursor")
    assert (home / CURSOR.file).is_symlink()
    assert dotfiles.read_bytes() == CURSOR.content
    assert codex.read_bytes() != CODEX.content


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b'{"mcpServers": {"a": {"command": "sh"}, "a": {"command": "sh"}}}', "occurs twice"),
        (b'{"mcpServers": {"a": ', "not JSON"),
        (b'{"mcpServers": {"a": {"command": "\xff"}}}', "not UTF-8"),
    ],
)
def test_a_file_that_is_not_what_its_client_reads_is_left_alone_with_a_word_and_others_go_on(
    home: Path, content: bytes, word: str
) -> None:
    file, codex = put(home, CURSOR), put(home, CODEX)
    file.write_bytes(content)
    result = runner.invoke(app, ["init", "--yes"])
    assert result.exit_code == 2
    assert word in result.stderr
    assert file.read_bytes() == content
    assert "riglm" in servers_in(codex)


def test_a_project_has_its_own_servers_and_its_own_configuration(home: Path) -> None:
    work = home / "work"
    put(home, CLAUDE_CODE)
    own = work / ".mcp.json"
    own.write_text('{"mcpServers": {"db": {"command": "sh", "args": ["${HOME}/db"]}}}', "utf-8")
    user = json.loads(CLAUDE_CODE.text)
    user["projects"][str(work)] = {"mcpServers": {"local": {"type": "stdio", "command": "sh"}}}
    (home / ".claude.json").write_text(json.dumps(user), "utf-8")
    result = runner.invoke(app, ["init", "--dry-run"])
    assert "riglm init --project ." in result.output
    done("init", "--project", ".")
    assert list(json.loads(own.read_text("utf-8"))["mcpServers"]) == ["riglm-work"]
    claude = json.loads((home / ".claude.json").read_text("utf-8"))
    assert list(claude["projects"][str(work)]["mcpServers"]) == ["riglm-work-local"]
    assert "riglm" not in claude["mcpServers"]
    done("init")
    assert len({each.configuration for each in installations()}) == 3
    assert [entry.entry for entry in riglm_entries() if entry.client == "claude-code"] == [
        "riglm",
        "riglm-work-local",
        "riglm-work",
    ]
    done("undo")
    assert json.loads((home / ".claude.json").read_text("utf-8")) == user
    assert own.read_text("utf-8") == '{"mcpServers": {"db": {"command": "sh", "args": ["${HOME}/db"]}}}'


def test_no_two_entries_that_a_client_puts_together_have_one_name(home: Path) -> None:
    server = '{"command": "sh"}'
    local = '{"type": "local", "command": ["sh"]}'
    inner = home / "work" / "packages" / "work"
    for file, text in (
        (home / ".codex/config.toml", '[mcp_servers.a]\ncommand = "sh"\n'),
        (home / "work/.codex/config.toml", '[mcp_servers.b]\ncommand = "sh"\n'),
        (inner / ".codex/config.toml", '[mcp_servers.c]\ncommand = "sh"\n'),
        (home / ".gemini/settings.json", f'{{"mcpServers": {{"a": {server}}}}}'),
        (home / "work/.gemini/settings.json", f'{{"mcpServers": {{"b": {server}}}}}'),
        (home / ".config/opencode/opencode.json", f'{{"mcp": {{"a": {local}}}}}'),
        (home / ".config/opencode/opencode.jsonc", f'{{"mcp": {{"b": {local}}}}}'),
        (home / "work/opencode.json", f'{{"mcp": {{"c": {local}}}}}'),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    for words in (["--project", "."], ["--project", str(inner)], []) * 2:
        done("init", *words)
    found: dict[str, list[str]] = {}
    for each in installations():
        found.setdefault(each.client, []).append(each.entry)
    assert found == {
        "codex": ["riglm-work", "riglm-work-2", "riglm"],
        "gemini": ["riglm-work", "riglm"],
        "opencode": ["riglm-work", "riglm", "riglm-2"],
    }
    learned_by = [front.entries for front in find_proxies(None, None, "codex")]
    assert learned_by == [{"riglm-work"}, {"riglm-work-2"}, {"riglm"}]  # each transcript tells which one it was


def test_a_variable_that_is_not_set_fails_its_own_server_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "well": {"command": "sh"},
        "program": {"command": "${R_BIN}/sh"},
        "folder": {"command": "sh", "cwd": "${R_DIR}"},
        **{
            f"at{number}": {"type": "http", "url": url, "headers": {"A": "b"}}
            for number, url in enumerate(
                [
                    "${R_URL}",
                    "${R_URL}/mcp",
                    "http://${R_HOST}/mcp",
                    "http://h:${R_PORT}/mcp",
                    "${R_KIND}://h/${R_PATH}",
                ]
            )
        },
    }
    (home / ".claude.json").write_text(json.dumps({"mcpServers": said}), "utf-8")
    for name, value in {"BIN": "/bin", "DIR": "/", "URL": "http://h", "HOST": "h", "PORT": "1", "KIND": "http"}.items():
        monkeypatch.setenv(f"R_{name}", value)
    done("init")
    for name in ("BIN", "DIR", "URL", "HOST", "PORT", "KIND"):
        monkeypatch.delenv(f"R_{name}")
    read = load(Options(config=home / ".config/riglm/claude-code.yaml"))
    require_upstreams(read, every=False)
    assert {spec.name for spec in read.settings.upstream_specs()} == {*said}
    with pytest.raises(ConfigurationError) as refused:
        require_upstreams(read)
    assert "the program 'R_BIN is not set/sh' was not found" in str(refused.value)
    assert "there is no directory 'R_DIR is not set'" in str(refused.value)
    assert read.settings.upstream_specs()[4].url == "http://r-url-is-not-set.invalid/mcp"


def test_a_configuration_that_is_gone_is_told_with_what_brings_the_servers_back(home: Path) -> None:
    file = put(home, CURSOR)
    done("init")
    configuration = Path(told("init")["places"][0]["configuration"])
    configuration.unlink()
    result = runner.invoke(app, ["init", "--yes"])
    assert result.exit_code == 2
    assert f"{configuration}, where riglm has the servers" in result.output
    assert "fix: `riglm undo --client cursor` puts them back" in result.output
    done("undo", "--client", "cursor")
    assert file.read_bytes() == CURSOR.content


def test_config_check_looks_at_what_init_made_where_nothing_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGLM_EMBEDDER__PROVIDER", "static")
    (home / ".claude.json").write_text('{"mcpServers": {"one": {"command": "sh"}}}', "utf-8")
    project = home / "project"
    project.mkdir()
    (project / "run.sh").touch(0o700)
    (project / ".mcp.json").write_text('{"mcpServers": {"two": {"command": "./run.sh"}}}', "utf-8")
    done("init")
    done("init", "--project", str(project))
    first, second = (each.configuration for each in installations())
    result = runner.invoke(check_app, ["check"])
    good = "the configuration is good; servers: "
    assert result.stdout == f"{first}: {good}one\n{second}: {good}two\n"
    (project / "run.sh").unlink()
    result = runner.invoke(check_app, ["check"])
    assert "mcpServers.two.command" in str(result.exception)
    assert str(second) in str(result.exception)


def test_a_whole_command_in_the_place_of_a_program_shows_no_secret_of_its_own(home: Path) -> None:
    (home / ".cursor").mkdir()
    said = {
        "a": {"command": "env API_KEY=SECabc9 npx foo"},
        "b": {"command": "TOKEN=SECabc9 npx"},
        "c": {"command": "none --token SECabc9"},
    }
    (home / CURSOR.file).write_text(json.dumps({"mcpServers": said}), "utf-8")
    (place,) = told("init")["places"]
    assert [stay["why"] for stay in place["stays"]] == [
        "the program 'env API_KEY=*** npx foo' was not found",
        "the program 'TOKEN=*** npx' was not found",
        "the program 'none --token ***' was not found",
    ]
    assert "SECabc9" not in runner.invoke(app, ["init"]).output


def test_without_a_client_there_is_nothing_to_do_and_an_unknown_one_is_refused(home: Path) -> None:
    assert "no client" in done("init").output
    assert "nothing to take back" in done("undo").output
    assert "riglm knows no client 'emacs'" in str(runner.invoke(app, ["init", "--client", "emacs"]).exception)


@pytest.mark.parametrize("command", ["init", "undo"])
def test_a_directory_that_is_not_there_is_wrong_use(home: Path, command: str) -> None:
    refused = runner.invoke(app, [command, "--project", str(home / "typo")]).exception
    assert isinstance(refused, UnusableInputError)
    assert f"--project {home}/typo: there is no such directory" in str(refused)


def test_a_server_to_include_that_nobody_has_is_wrong_use_and_nothing_is_done(home: Path) -> None:
    file = put(home, CLAUDE_CODE)
    refused = runner.invoke(app, ["init", "--yes", "--include", "linaer"]).exception
    assert isinstance(refused, UnusableInputError)
    assert "--include linaer: no server is called so" in str(refused)
    assert "linear" in str(refused)
    assert file.read_bytes() == CLAUDE_CODE.content
    done("init", "--include", "linear")
    done("init", "--include", "linear")  # it is behind riglm now


def test_a_file_that_became_another_one_meanwhile_is_not_written_over(home: Path) -> None:
    file = put(home, CURSOR)
    context = setup_context()
    (plan,) = SetupPlanner(context).plans((), None)
    file.write_text("{}", "utf-8")
    with pytest.raises(ConflictError, match="changed by another process"):
        install(context, plan)
    assert file.read_text("utf-8") == "{}"
    assert list(home.glob(".config/riglm/*")) == []
    assert installations() == ()


def test_what_cannot_be_written_keeps_nothing_else_from_being_done_and_is_told(home: Path) -> None:
    cursor, codex = put(home, CURSOR), put(home, CODEX)
    cursor.chmod(0o444)
    result = runner.invoke(app, ["init", "--yes"])
    assert result.exit_code == 1
    assert f"not done for cursor, {cursor}: {cursor} has no write permission" in result.stderr.replace("\n", " ")
    assert cursor.read_bytes() == CURSOR.content
    assert "done: start codex again" in result.stdout
    assert [each.client for each in installations()] == ["codex"]
    again = runner.invoke(app, ["init", "--yes", "--json"])
    assert {place["client"]: place["done"] for place in json.loads(again.stdout)["places"]} == {
        "codex": False,
        "cursor": False,
    }
    cursor.chmod(0o644)
    done("init")
    codex.chmod(0o444)
    result = runner.invoke(app, ["undo", "--yes", "--json"])
    assert result.exit_code == 1
    files = {file["client"]: (file["done"], file["fault"]) for file in json.loads(result.stdout)["files"]}
    assert files["cursor"] == (True, None)
    assert files["codex"][0] is False
    assert "has no write permission" in files["codex"][1]
    assert cursor.read_bytes() == CURSOR.content


def test_what_was_noted_and_never_written_is_undone_by_leaving_the_file_as_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(home, CURSOR)
    context = setup_context()
    (plan,) = SetupPlanner(context).plans((), None)

    def be_killed(file: Path, before: bytes | None, after: bytes | None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(context.journal, "drop", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            install(replace(context, write=be_killed), plan)
    assert len(installations()) == 1
    done("undo")
    assert file.read_bytes() == CURSOR.content
    assert installations() == ()


@pytest.mark.parametrize("number", range(4), ids=["copy", "journal", "configuration", "client's file"])
def test_init_on_a_full_disk_names_it_and_leaves_nothing_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    put(home, CURSOR)
    before = {path: path.read_bytes() if path.is_file() else None for path in home.rglob("*")}
    calls = iter(range(number + 1))

    def write_to_disk(_: int) -> None:
        if next(calls, number) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", write_to_disk)
    result = runner.invoke(app, ["init", "--yes"])
    assert result.exit_code == 1
    assert "no space is left on the disk of " in result.output
    assert " — fix: free space there" in result.output
    assert {path: path.read_bytes() if path.is_file() else None for path in home.rglob("*")} == before
