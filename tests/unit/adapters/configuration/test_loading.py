import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.configuration.loading import Configuration, Options, load
from riglm.domain.errors import ConfigurationError


class Place:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment: dict[str, str] = {"RIGLM_DATA_DIR": str(directory / "data")}

    def yaml(self, text: str) -> None:
        (self.directory / "riglm.yaml").write_text(text, "utf-8")

    def client_file(self, values: Any) -> Path:
        file = self.directory / "client.json"
        file.write_text(json.dumps(values), "utf-8")
        return file

    def load(self, options: Options | None = None, **environment: str) -> Configuration:
        return load(options or Options(), environment=self.environment | environment, directory=self.directory)

    def refusal(self, options: Options | None = None, **environment: str) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            self.load(options, **environment)
        return str(caught.value).splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_url_of_the_store_stands_in_place_of_the_file(place: Place) -> None:
    found = place.load(RIGLM_STORAGE__URL="postgresql://me:pw@host/db").settings.storage
    assert (found.kind, found.path) == ("postgresql", None)
    assert found.url is not None
    assert found.url.get_secret_value() == "postgresql://me:pw@host/db"


def test_options_win_over_variables_and_variables_over_the_file(place: Place) -> None:
    place.yaml("downstream: {host: 127.0.0.2, port: 1, path: /file}")
    options = Options(values=[("--port", ("downstream", "port"), 3), ("--host", ("downstream", "host"), None)])
    found = place.load(options, RIGLM_DOWNSTREAM__PORT="2", RIGLM_DOWNSTREAM__HOST="127.0.0.3")
    assert (found.settings.downstream.host, found.settings.downstream.port) == ("127.0.0.3", 3)
    assert found.settings.downstream.path == "/file"
    assert found.origins["downstream", "port"] == "--port"
    assert found.origins["downstream", "host"] == "RIGLM_DOWNSTREAM__HOST"
    assert found.origins["downstream", "path"].endswith("riglm.yaml")


@pytest.mark.parametrize(
    "options", [Options(url="http://h/mcp"), Options(command=["srv", "-x"]), Options(mcp_json=Path("client.json"))]
)
def test_a_server_on_the_command_line_replaces_those_of_file_and_environment(place: Place, options: Options) -> None:
    place.yaml("mcpServers: {a: {command: x}}\nnaming: none")
    if options.mcp_json:
        options = Options(mcp_json=place.client_file({"mcpServers": {"b": {"command": "y"}}}))
    found = place.load(options, RIGLM_MCPSERVERS__C__COMMAND="z").settings
    [spec] = found.upstream_specs()
    assert spec.name in {"h", "srv", "b"}
    assert found.naming == "none"


def test_variables_authorize_towards_the_url_of_the_command_line(place: Place) -> None:
    place.yaml("upstream: {headers: {X-File: '1'}}")
    variables = {"RIGLM_UPSTREAM__AUTH__TOKEN": "secret", "RIGLM_UPSTREAM__HEADERS": '{"X-Team": "a"}'}
    [spec] = place.load(Options(url="http://h/mcp"), **variables).settings.upstream_specs()
    assert dict(spec.headers) == {"X-Team": "a", "Authorization": "Bearer secret"}


def test_variables_for_another_url_are_not_sent_to_that_of_the_command_line(place: Place) -> None:
    variables = {"RIGLM_UPSTREAM__AUTH__TOKEN": "secret", "RIGLM_UPSTREAM__URL": "http://other/mcp"}
    [spec] = place.load(Options(url="http://h/mcp"), **variables).settings.upstream_specs()
    assert dict(spec.headers) == {}


def test_servers_named_in_two_ways_are_refused(place: Place) -> None:
    [line] = place.refusal(Options(url="http://h", command=["x"]))
    assert line == (
        "command line: servers are named in several ways — fix: keep one of --mcp-json, --url and -- COMMAND"
    )


def test_variables_are_expanded_once_and_only_in_braces(place: Place) -> None:
    place.yaml(
        """
        upstream:
          command: [srv, "${WORD}", "$WORD", "${EMPTY:-fallback}", "a${UNSET:-}b", "${SET_EMPTY}", "${not a name}"]
          env: {KEY: "${NESTED}"}
        """
    )
    found = place.load(None, WORD="word", EMPTY="", NESTED="${WORD}", SET_EMPTY="")
    [spec] = found.settings.upstream_specs()
    assert spec.command == ("srv", "word", "$WORD", "fallback", "ab", "", "${not a name}")
    assert spec.env == {"KEY": "${WORD}"}


def test_an_unset_variable_is_named_with_its_path(place: Place) -> None:
    place.yaml("mcpServers: {docs: {command: srv, args: [a, '${NOPE}']}}")
    [line] = place.refusal()
    assert line.endswith(
        "riglm.yaml: mcpServers.docs.args[1]: the variable NOPE is not set — fix: set NOPE, or write ${NOPE:-default}"
    )


def test_all_that_is_wrong_is_told_at_once_with_place_and_fix(place: Place) -> None:
    place.yaml(
        """
mcpServers:
  github: {comand: npx}
  docs: {url: "ftp://h"}
downstream: {port: 1, port: many, transport: pigeon}
filtering: [1]
nonsense: 1
timeouts: {call: -1, list: soon}
limits: {message_bytes: 1.5}
logging: {include_arguments: perhaps}
sessions: {meta_keys: 7, header: 1}
storage: {path: ""}
privacy: {arguments: {}}
"""
    )
    lines = place.refusal(None, RIGLM_NAMING="both")
    text = "\n".join(line.removeprefix(f"{place.directory}/") for line in lines)
    for expected in (
        "riglm.yaml: line 5: the key `port` occurs twice in one place — fix: keep one of them",
        "riglm.yaml: mcpServers.github.comand: unknown key — fix: did you mean `command`?",
        "riglm.yaml: mcpServers.docs.url: this is not a URL",
        "riglm.yaml: downstream.port: this is not a whole number — fix: write digits only",
        "riglm.yaml: downstream.transport: this is none of the choices — fix: write 'http', 'sse' or 'both'",
        "riglm.yaml: filtering: this is not a section — fix: write keys with values below it",
        "riglm.yaml: nonsense: unknown key — fix: known are upstream, mcpServers, naming",
        "riglm.yaml: timeouts.call: the value should be greater than 0 — fix: see `riglm config schema`",
        "riglm.yaml: timeouts.list: this is not a number — fix: write seconds as a number",
        "riglm.yaml: limits.message_bytes: this is not a whole number",
        "riglm.yaml: logging.include_arguments: this is not a yes or no — fix: write true or false",
        "riglm.yaml: sessions.meta_keys: this is not a list — fix: write [one, two]",
        "riglm.yaml: storage.path: this is empty — fix: give it a value, or remove it",
        "RIGLM_NAMING: naming: this is none of the choices — fix: write 'prefix', 'on_collision' or 'none'",
    ):
        assert expected in text
    assert all(" — fix: " in line for line in lines)


def test_no_message_quotes_a_secret_value(place: Place) -> None:
    place.yaml("upstream: {url: 'http://h', auth: {token: 'canary canary'}, headers: {X: \"canary\\n\"}}")
    assert "canary" not in "\n".join(place.refusal())


# --- environment ---


def test_every_kind_of_value_can_be_set_by_a_variable(place: Place) -> None:
    found = place.load(
        None,
        RIGLM_MCPSERVERS__DOCS__URL="http://h/mcp",
        RIGLM_MCPSERVERS__DOCS__HEADERS__X_API_KEY="k",
        RIGLM_MCPSERVERS__TOOL__COMMAND="my srv, really",
        RIGLM_MCPSERVERS__TOOL__ARGS='["a,b", "c"]',
        RIGLM_MCPSERVERS__TOOL__ENV__GIT__TOKEN="t",
        RIGLM_DOWNSTREAM__ALLOWED_HOSTS="one, two",
        RIGLM_TIMEOUTS='{"call": 5, "call_max": 6}',
        RIGLM_FILTERING__ENABLED="false",
        RIGLM_FILTERING__META_TOOLS__MARK_TOOL="true",
        RIGLM_FILTERING__CLIENTS='{"my-agent*": "stable"}',
        RIGLM_PREDICTOR__OPTIONS='{"decay": 0.5}',
        RIGLM_LOGGING__LEVEL="",
    ).settings
    docs, tool = found.upstream_specs()
    assert (docs.name, docs.url, docs.headers) == ("docs", "http://h/mcp", {"X-API-KEY": "k"})
    assert (tool.command, tool.env) == (("my srv, really", "a,b", "c"), {"GIT__TOKEN": "t"})
    assert found.downstream.allowed_hosts == ("one", "two")
    assert (found.filtering.meta_tools.mark_tool, found.filtering.meta_tools.call_tool) == (True, True)
    assert (found.filtering.clients, found.predictor.options) == ({"my-agent*": "stable"}, {"decay": 0.5})
    assert (found.timeouts.call, found.filtering.enabled, found.logging.level) == (5, False, "info")


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        (
            "RIGLM_DOWNSTREAM__PROT",
            "1",
            "RIGLM_DOWNSTREAM__PROT: there is no such setting — fix: did you mean RIGLM_DOWNSTREAM__PORT?",
        ),
        (
            "RIGLM_LOGING__LEVEL",
            "info",
            "RIGLM_LOGING__LEVEL: there is no such setting — fix: did you mean RIGLM_LOGGING__LEVEL?",
        ),
        ("RIGLM_NAMNG", "none", "RIGLM_NAMNG: there is no such setting — fix: did you mean RIGLM_NAMING?"),
        ("RIGLM_PRIVACY__ZZZ", "1", "RIGLM_PRIVACY__ZZZ: there is no such setting — fix: did you mean RIGLM_PRIVACY?"),
        ("RIGLM_FOO", "1", "RIGLM_FOO: there is no such setting — fix: remove it"),
        (
            "RIGLM_LOGGING_LEVEL",
            "info",
            "RIGLM_LOGGING_LEVEL: there is no such setting — fix: did you mean RIGLM_LOGGING__LEVEL?",
        ),
        ("RIGLM_NAMING__X", "1", "RIGLM_NAMING__X: there is no such setting — fix: did you mean RIGLM_NAMING?"),
        ("RIGLM_TIMEOUTS", "{", "RIGLM_TIMEOUTS: this is not a JSON object — fix: write it as JSON, or set"),
        ("RIGLM_UPSTREAM__ARGS", "[", "RIGLM_UPSTREAM__ARGS: this is not a JSON list — fix: write it as JSON"),
        ("RIGLM_DOWNSTREAM__PORT", "x", "RIGLM_DOWNSTREAM__PORT: downstream.port: this is not a whole number"),
    ],
)
def test_a_variable_that_sets_nothing_sensible_is_named(place: Place, name: str, value: str, line: str) -> None:
    assert place.refusal(None, **{name: value})[0].startswith(line)


# --- client files ---


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_a_clients_file_is_taken_with_what_riglm_does_not_know_in_it(place: Place, key: str) -> None:
    file = place.client_file(
        {
            "theme": "dark",
            "inputs": [],
            key: {
                "a": {"command": "x", "args": ["${env:WORD}"], "alwaysAllow": ["t"], "headers": {}, "cwd": None},
                "b": {"type": "streamableHttp", "url": "http://h", "env": {"A": "b"}, "timeout": 5},
                "c": {"command": "x", "args": ["${input:secret}"], "disabled": True},
                "d": {"command": "x", "enabled": False},
                "e": {"serverUrl": "http://h/sse", "headers": {"X": "${WORD}"}},
                "f": {"command": "x", "args": ["${workspaceFolder}/${userHome}"]},
            },
        }
    )
    found = place.load(Options(mcp_json=file), WORD="word")
    a, b, e, f = found.settings.upstream_specs()
    assert (a.command, b.kind, e.kind, e.headers) == (("x", "word"), "http", "sse", {"X": "word"})
    assert f.command[1] == f"{Path.cwd()}/{Path.home()}"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"theme": "dark"}, "client.json: the file lists no servers — fix: give it"),
        ({"mcpServers": {"a": {"command": "${NOPE}"}}}, "mcpServers.a.command: the variable NOPE is not set"),
        ({"mcpServers": {"a": "npx"}}, "mcpServers.a: this is not an object"),
        ({"mcpServers": {"a": {"type": "pigeon", "url": "http://h"}}}, "mcpServers.a.type: this is none of"),
        ({"mcpServers": {}}, "client.json: mcpServers: it lists no servers — fix: give it"),
        (
            {"servers": {"a": {"command": "x", "disabled": True}, "b": {"url": "http://h", "enabled": False}}},
            "client.json: servers: all servers of the file are disabled — fix: enable one",
        ),
    ],
)
def test_a_clients_file_that_cannot_be_used_is_named(place: Place, values: Any, words: str) -> None:
    assert words in "\n".join(place.refusal(Options(mcp_json=place.client_file(values))))


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    """Return a value in so many others."""
    return reduce(lambda inner, _: wrap(inner), range(depth), "x")


UNUSABLE: dict[str, Any] = {
    "unknown type": {"type": "websocket", "url": "http://h"},
    "unset variable": {"command": "x", "args": ["${NOPE}"]},
    "input": {"command": "x", "env": {"KEY": "${input:key}"}},
    "list in env": {"command": "x", "env": {"A": ["b"]}},
    "scheme": {"url": "ws://h"},
    "odd header": {"url": "http://h", "headers": {"a b": "c"}},
    "text": "npx it",
    "no command": {"args": []},
    "sign-in by a callback": {"url": "http://h", "auth": {"callbackPort": 8}},
    "deep list": {"command": "x", "env": {"A": nested(400, lambda inner: [inner])}},
    "switch": {"command": "x", "disabled": "perhaps"},
    "surrogate in the URL": {"url": "http://\ud800"},
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_unusable_server_of_a_clients_file_is_left_out_with_one_line(place: Place, kind: str) -> None:
    file = place.client_file({"servers": {"good": {"command": "x"}, kind: UNUSABLE[kind]}})
    found = place.load(Options(mcp_json=file))
    assert [spec.name for spec in found.settings.upstream_specs()] == ["good"]
    (warning,) = found.warnings
    where, fix = warning.split(" — fix: ")
    assert where.startswith(f"{file}: servers.{kind}")
    assert where.endswith("; the server is left out")
    assert fix
    place.yaml("mcpServers: {bad: {type: pigeon, url: 'http://h'}}")
    assert place.refusal(), "riglm.yaml is validated as a whole"


def test_servers_of_a_clients_file_whose_tools_could_get_one_name_are_renamed(place: Place) -> None:
    servers = {name: {"command": name} for name in ("a", "a_", "a__b", "A")}
    found = place.load(Options(mcp_json=place.client_file({"mcpServers": servers})))
    assert [spec.name for spec in found.settings.upstream_specs()] == ["a", "a-2", "a_b", "A-3"]


@pytest.mark.parametrize(
    ("servers", "names"),
    [
        (["a/b", "a b", "a-b-2", "a-b"], ["a-b-3", "a-b-4", "a-b-2", "a-b"]),
        (["n" * 60, "n" * 61, "n" * 48], ["n" * 44 + "-2", "n" * 44 + "-3", "n" * 48]),
        (["riglm", "riglm-server"], ["riglm-server-2", "riglm-server"]),
    ],
)
def test_a_server_keeps_a_name_that_riglm_takes(place: Place, servers: list[str], names: list[str]) -> None:
    found = place.load(
        Options(mcp_json=place.client_file({"mcpServers": {each: {"command": "x"} for each in servers}}))
    )
    assert [spec.name for spec in found.settings.upstream_specs()] == names


@pytest.mark.parametrize(
    ("server", "is_process"),
    [
        ({"url": "http://h", "command": [], "args": "", "headers": [], "auth": {}, "type": ""}, False),
        ({"command": "x", "url": "", "serverUrl": None, "env": [], "cwd": "", "headers": None}, True),
        ({"command": "x", "url": "http://h", "headers": {"a b": "c"}}, True),
        ({"command": "x", "args": ["y"], "url": "http://h", "type": "http"}, False),
        ({"command": "x", "transport": {"type": "x"}}, True),
    ],
)
def test_members_that_are_empty_or_of_another_kind_of_server_are_ignored(
    place: Place, server: dict[str, Any], is_process: bool
) -> None:
    found = place.load(Options(mcp_json=place.client_file({"mcpServers": {"a": server}})))
    (spec,) = found.settings.upstream_specs()
    assert (spec.command[:1] == ("x",), bool(spec.url)) == (is_process, not is_process)
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("sign_in", "auth"),
    [
        ({"auth": "oauth"}, None),
        ({"oauth": {"enabled": True, "callbackPort": 8}}, None),
        ({"oauth": {"clientId": "me"}, "headers": {"Authorization": "Bearer it"}}, None),
        ({"auth": {"CLIENT_ID": "me", "CLIENT_SECRET": "", "scopes": "read write"}}, ("me", ("read", "write"))),
        ({"oauth": {"clientId": "me", "scope": "read"}, "auth": "oauth"}, ("me", ("read",))),
        ({"scopes": ["read"], "oauth_client_id": "me"}, ("me", ("read",))),
        ({"auth": {"client_id": "me", "scopes": ["read"], "issuer": "https://i"}}, ("me", ("read",))),
    ],
)
def test_the_sign_in_of_a_clients_file_is_translated(
    place: Place, sign_in: dict[str, Any], auth: tuple[str, tuple[str, ...]] | None
) -> None:
    found = place.load(Options(mcp_json=place.client_file({"mcpServers": {"a": {"url": "https://h/mcp", **sign_in}}})))
    made = found.settings.mcp_servers["a"].auth
    assert (made and (made.client_id, made.scopes)) == auth
    assert found.warnings == ()
