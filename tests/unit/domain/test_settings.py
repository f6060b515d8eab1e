import pytest
from pydantic import ValidationError

from riglm.domain.schemas.downstream import is_loopback
from riglm.domain.schemas.settings import RESERVED_NAMES, Settings
from riglm.domain.upstream import UpstreamSpec

ACCOUNT = {"email": "me@example.org", "password": "secret-of-metamcp"}
TOKEN = "8f3a6c0d9e1b47725a"
KEY = "k3y" * 11
MACHINE = {"grant_type": "client_credentials", "client_id": "a", "client_secret": "b", "issuer": "https://i"}


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


def spec(**server: object) -> UpstreamSpec:
    [only] = settings(mcpServers={"one": server}).upstream_specs()
    return only


def complaint(**values: object) -> str:
    with pytest.raises(ValidationError) as caught:
        settings(**values)
    return "\n".join(error["msg"] for error in caught.value.errors())


def test_a_command_becomes_a_stdio_server_with_its_words_in_order() -> None:
    found = spec(command="npx", args=["-y", 7], env={"A": "b", "N": 1}, cwd="/srv", sharing="session", max_processes=2)
    assert (found.kind, found.command, found.env) == ("stdio", ("npx", "-y", "7"), {"A": "b", "N": "1"})
    assert (found.cwd, found.sharing, found.max_processes) == ("/srv", "session", 2)


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ({"url": "http://h/mcp"}, "http"),
        ({"url": "http://h/sse"}, "sse"),
        ({"url": "http://h/sse", "type": "http"}, "http"),
        ({"url": "http://h/mcp", "type": "streamable-http"}, "http"),
        ({"url": "http://h/mcp", "transport": "sse"}, "sse"),
        ({"url": "http://h/mcp", "type": "remote"}, "http"),
        ({"serverUrl": "http://h/mcp"}, "http"),
        ({"httpUrl": "http://h/sse"}, "http"),
        ({"command": "srv"}, "stdio"),
        ({"command": ["srv"], "type": "local", "environment": {"A": "b"}}, "stdio"),
    ],
)
def test_the_words_of_all_clients_mean_the_same(server: dict[str, object], kind: str) -> None:
    assert spec(**server).kind == kind


def test_authorisation_is_resolved_into_the_header() -> None:
    assert spec(url="http://h", auth={"type": "bearer", "token": "t0ken"}).headers == {"Authorization": "Bearer t0ken"}
    basic = spec(url="http://me:p%40ss@h:8/x")
    assert (basic.url, basic.headers) == ("http://h:8/x", {"Authorization": "Basic bWU6cEBzcw=="})
    assert spec(url="http://h", headers={"X-Key": "k"}).headers == {"X-Key": "k"}


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({}, "neither `command` nor `url`"),
        ({"command": "a", "url": "http://h"}, "both `command` and `url`"),
        ({"command": " "}, "the command is empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "a", "type": "http"}, "type http does not go with `command`"),
        ({"command": "a", "headers": {"A": "b"}}, "`headers` does not go with `command`"),
        ({"url": "http://h/mcp", "metamcp": ACCOUNT}, "not that of an endpoint of MetaMCP"),
        ({"url": "http://h/metamcp/a/api", "metamcp": ACCOUNT}, "write http://HOST:12008/metamcp/ENDPOINT/mcp"),
        ({"url": "http://h", "args": ["a"]}, "`args` does not go with `url`"),
        ({"url": "ftp://h"}, "not a URL that riglm can reach"),
        ({"url": "http://[::1"}, "not a URL that riglm can reach"),
        ({"url": "http://h", "serverUrl": "http://i"}, "`serverUrl` and `url` say the same thing"),
        ({"url": "http://h", "headers": {"A b": "c"}}, "'A b' is not the name of a header"),
        ({"url": "http://h", "headers": {"A": "b\r\nC: d"}}, "a header's value is one line"),
        ({"url": "http://h", "auth": {"token": ""}}, "the token is empty"),
        ({"url": "http://h", "auth": {"token": "a", "scopes": ["b"]}}, "`token` does not go with"),
        ({"url": "http://h", "auth": {"client_secret": "a"}}, "this key is missing"),
        ({"url": "http://h", "auth": {"client_id": "a", "private_key_file": "b"}}, "does not use this key"),
        ({"url": "http://h", "auth": {**MACHINE, "issuer": ""}}, "`client_credentials` needs it"),
        ({"url": "http://h", "auth": {**MACHINE, "private_key_file": "b"}}, "one of two keys"),
        ({"url": "http://h", "auth": {**MACHINE, "grant_type": "identity_assertion"}}, "`identity_assertion` needs it"),
        ({"url": "http://h", "auth": {"client_metadata_url": "http://h/c"}}, "not the URL of a client id metadata"),
        ({"url": "http://h", "auth": {"token": "a"}, "headers": {"authorization": "b"}}, "given twice"),
        ({"url": "http://a:b@h", "auth": {"token": "a"}}, "given twice"),
        ({"url": "http://h", "auth": {"accounts": "caller"}, "on_change": "block"}, "cannot be approved for all"),
        ({"command": "a", "env": {"A=B": "c"}}, "'A=B' cannot be set"),
    ],
)
def test_a_server_that_cannot_work_is_refused_with_the_reason(server: dict[str, object], words: str) -> None:
    text = complaint(mcpServers={"one": server})
    assert words in text
    assert " — fix: " in text


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "RIGLM", "", "a b", "a/b", "-a", "x" * 49, "é"])
def test_a_server_cannot_have_a_reserved_or_unusable_name(name: str) -> None:
    assert " — fix: " in complaint(mcpServers={name: {"command": "x"}})


@pytest.mark.parametrize(("one", "other"), [("a", "a__b"), ("a", "a_"), ("a__b", "a")])
def test_two_names_whose_tools_could_collide_are_refused_by_name(one: str, other: str) -> None:
    servers = {one: {"command": "x"}, other: {"command": "y"}}
    text = complaint(mcpServers=servers)
    assert repr(one) in text
    assert repr(other) in text
    assert settings(mcpServers=servers, naming="none").upstream_specs()
    assert settings(mcpServers=servers | {one: {"command": "x", "disabled": True}}).upstream_specs()


def test_upstream_and_mcp_servers_exclude_each_other() -> None:
    assert "both given" in complaint(upstream={"command": "x"}, mcpServers={"a": {"command": "x"}})


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"filtering": {"strategy": "allowlist"}}, "the strategy is allowlist and filtering.allowlist is empty"),
        ({"filtering": {"min_tools": 9, "max_tools": 8}}, "max_tools (8) is less than min_tools (9)"),
        ({"filtering": {"profiles": {"a/b": {}}}}, "'a/b' cannot be the name of a profile"),
        ({"filtering": {"profile": "c", "profiles": {"a": {}, "b": {}}}}, "use one of: default, a, b"),
        ({"filtering": {"profiles": {"a": {}, "A": {}}}}, "'a' and 'A' differ in case only"),
        ({"filtering": {"profiles": {"a": {"allowlist": []}}}}, "the allowlist is empty"),
        ({"filtering": {"profiles": {"a": {"directories": ["."]}}}}, "'.' is no absolute path"),
        (
            {"filtering": {"profiles": {"a": {"directories": ["/x/"]}, "b": {"directories": ["/x"]}}}},
            "'/x' is in the directories of 'a' and 'b'",
        ),
        ({"filtering": {"profiles": {"a": {"denylist": ["[x"]}}}}, "'[x' opens a bracket"),
        ({"filtering": {"profiles": {"a": {"tokens": ["ann"]}}}}, "there is no token 'ann' in downstream.tokens"),
        (
            {
                "filtering": {"profiles": {"a": {"tokens": ["ann"]}, "b": {"tokens": ["ann"]}}},
                "downstream": {"tokens": {"ann": TOKEN}},
            },
            "'ann' is in the tokens of 'a' and 'b'",
        ),
        ({"logging": {"include_results": True}}, "results are never stored"),
        ({"timeouts": {"call": 10, "call_max": 5}}, "call_max (5) is less than call (10)"),
        ({"downstream": {"host": "0.0.0.0"}}, "0.0.0.0 can be reached from other machines and no token is set"),
        ({"downstream": {"host": "::", "token": "changeme"}}, "easy to guess"),
        ({"downstream": {"token": "fifteen-letters"}}, "the token is too short"),
        ({"downstream": {"token": "with space"}}, "the token is empty or has spaces"),
        ({"downstream": {"tokens": {"ann": "fifteen-letters"}}}, "the token of ann is too short"),
        ({"downstream": {"tokens": {"bearer": TOKEN}}}, "'bearer' cannot name a caller"),
        ({"downstream": {"tokens": {"ann": TOKEN, "bob": TOKEN}}}, "have the same token"),
        ({"downstream": {"host": "::", "tokens": {"ann": "your-secret-token-here-change-me"}}}, "easy to guess"),
        ({"storage": {"kind": "postgresql"}}, "PostgreSQL has no place"),
        ({"storage": {"url": "mysql://host/db"}}, "this is no URL of PostgreSQL"),
        ({"storage": {"path": "a.db", "url": "postgresql://host/db"}}, "a file and a URL are both given"),
        ({"control": {"read_token": "with spaces in between"}}, "has spaces"),
        ({"control": {"token": TOKEN, "read_token": TOKEN}}, "are the same"),
        ({"control": {"host": "0.0.0.0", "token": "change-me-change-me"}}, "easy to guess"),
        ({"state": {"url": "http://h"}}, "write it as redis://USER:PASSWORD@HOST:PORT/0"),
        ({"state": {"kind": "memory", "url": "redis://h"}}, "set the kind to redis"),
        ({"privacy": {"key": "short"}}, "openssl rand -hex 32"),
    ],
)
def test_a_section_that_cannot_work_is_refused_with_the_reason(section: dict[str, object], words: str) -> None:
    text = complaint(**section)
    assert words in text
    assert " — fix: " in text


def test_a_public_address_is_fine_with_a_good_token() -> None:
    found = settings(downstream={"host": "0.0.0.0", "token": TOKEN})
    assert TOKEN not in repr(found)
    assert settings(control={"host": "0.0.0.0"}).control.host == "0.0.0.0"  # the start knows tokens that were made


@pytest.mark.parametrize("section", ["state", "storage"])
@pytest.mark.parametrize("password", ["s3/cret", "1234/s3cret", "s3#cret", "s3?cret", "s3@cret", "s3%cret"])
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(section: str, password: str) -> None:
    scheme = "redis" if section == "state" else "postgresql"
    text = complaint(**{section: {"url": f"{scheme}://me:{password}@host/0"}})
    assert "write / as %2F" in text
    assert "cret" not in text


def test_what_both_lists_name_is_a_contradiction() -> None:
    found = settings(filtering={"allowlist": ["a", "b", "c_*"], "denylist": ["c_*", "a"]}).filtering
    assert found.contradictions == ("a", "c_*")


def test_loopback_is_recognised_in_all_spellings() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org", ""]))


@pytest.mark.parametrize(
    ("section", "stored"),
    [
        ({}, "hash"),
        ({"privacy": {"arguments": "raw"}}, "raw"),
        ({"privacy": {"arguments": "none"}}, "none"),
        ({"logging": {"include_arguments": False}, "privacy": {"arguments": "raw"}}, "none"),
    ],
)
def test_either_switch_keeps_arguments_out_of_the_store(section: dict[str, object], stored: str) -> None:
    assert settings(**section).arguments == stored


@pytest.mark.parametrize(
    "url", ["postgresql://me:s3cret@host/db", "postgres://host/db?password=s3cret&sslmode=require"]
)
def test_a_url_alone_chooses_postgresql_and_its_password_is_a_secret(url: str) -> None:
    found = settings(storage={"url": url})
    assert found.storage.kind == "postgresql"
    assert found.secrets() == ("s3cret",)
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("url", "gateway", "endpoint"),
    [
        ("http://h:12008/metamcp/a/mcp", "http://h:12008", "a"),
        ("https://me:pass@h/under/metamcp/b/sse", "https://h/under", "b"),
    ],
)
def test_the_url_of_an_endpoint_names_metamcp_and_the_endpoint(url: str, gateway: str, endpoint: str) -> None:
    account = spec(url=url, metamcp=ACCOUNT).gateway
    assert account is not None
    assert (account.url, account.endpoint) == (gateway, endpoint)


def test_all_secrets_are_listed_for_redaction_and_none_is_in_the_repr() -> None:
    found = settings(
        downstream={"token": "secret-downstream", "tokens": {"ann": "secret-of-a-caller"}},
        mcpServers={
            "a": {"command": "x", "args": ["--token", "secret-arg"], "env": {"K": "secret-env"}},
            "b": {"url": "http://h/?k=secret-query", "headers": {"X": "secret-header"}},
            "c": {"url": "http://h", "auth": {"token": "secret-auth"}},
            "d": {"url": "http://h/metamcp/a/mcp", "metamcp": ACCOUNT},
        },
    )
    kinds = ("downstream", "of-a-caller", "env", "arg", "header", "query", "auth", "of-metamcp")
    assert set(found.secrets()) == {f"secret-{kind}" for kind in kinds}
    one = settings(upstream={"url": "http://h", "auth": {"token": "secret-one"}})
    assert one.secrets() == ("secret-one",)
    shared = settings(
        state={"url": "redis://u:p%40ss@h/0?password=q%21"}, privacy={"key": KEY}, control={"token": TOKEN}
    )
    assert {"p%40ss", "p@ss", "q!", KEY, TOKEN} <= set(shared.secrets())
    assert TOKEN not in repr(shared)


def test_only_known_scopes_of_learning_are_taken() -> None:
    assert Settings.model_validate({"learning": {"scope": "tenant"}}).learning.scope == "tenant"
    assert "principal" in complaint(learning={"scope": "team"})


def test_a_profile_adds_to_what_is_denied_and_pinned_and_replaces_the_allowlist() -> None:
    profiles = {"a": {"allowlist": ["x"], "denylist": ["y"], "pinned": ["z"]}, "b": None}
    filtering = settings(
        filtering={"allowlist": ["1"], "denylist": ["2"], "pinned": ["3"], "max_tools": 7, "profiles": profiles}
    ).filtering
    found = {
        name: (each.profile, each.allowlist, each.denylist, each.pinned, each.max_tools)
        for name in profiles
        for each in [filtering.of_profile(name)]
    }
    assert found == {"a": ("a", ("x",), ("2", "y"), ("3", "z"), 7), "b": ("b", ("1",), ("2",), ("3",), 7)}
