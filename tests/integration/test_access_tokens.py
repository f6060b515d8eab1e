"""`downstream.auth` and `access`: `riglm serve` as a protected resource of an OpenID provider."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import re
import socket
import sys
import time

import httpx2
import pytest
import yaml
from joserfc.jwk import ECKey, KeySet, RSAKey

from tests.integration.oauth import serving
from tests.integration.token_issuer import TokenIssuer
from tests.integration.topical import SERVER
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.stage import Stage, raw_post

AUDIENCE = "https://tools.example.org/mcp"
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
ACCESS = {
    "developers": {"servers": ["files", "shell"], "tools": ["*_file", "shell__*"]},
    "support": {"servers": ["tickets"], "profiles": ["desk"]},
}


SCOPES = ["tools", "admin"]


@contextlib.contextmanager
def running_issuer():
    made, listener = TokenIssuer(AUDIENCE), socket.create_server(("127.0.0.1", 0))
    made.start(f"http://127.0.0.1:{listener.getsockname()[1]}")
    with serving(made.app(), listener):
        yield made


@pytest.fixture(scope="module")
def issuer():
    with running_issuer() as made:
        yield made


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    made = Stage(tmp_path_factory.mktemp("served"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def origin(stage, issuer):
    """A riglm that requires a token of the issuer."""
    return serve(stage, issuer, servers=light(stage), tokens={"fixed": "f" * 20}, scopes=["tools"])


@pytest.fixture(scope="module")
def with_keys(stage, issuer):
    """A riglm that requires scopes and has the keys of the issuer in a file."""
    file = stage.folder / "keys.json"
    file.write_text(json.dumps(KeySet(issuer.keys).as_dict(private=False)))
    return serve(stage, issuer, servers=light(stage), jwks=str(file), scopes=SCOPES)


def light(stage):
    """A server that starts no process for a session."""
    return {"web": stage.entry("http")}


def serve(stage, issuer, *, access=None, tokens=None, servers=None, is_filtered=False, **auth):
    """The origin of a riglm in front of three servers with the same tools, one for each configuration."""
    command = {"command": sys.executable, "args": [str(SERVER)]}
    configuration = {
        "mcpServers": servers or dict.fromkeys(("files", "shell", "tickets"), command),
        "downstream": {"auth": {"issuer": issuer.url, "audience": AUDIENCE, **auth}, "tokens": tokens or {}},
        "filtering": {"enabled": is_filtered, "profiles": {"desk": {}}},
        "access": access or {},
        "embedder": {"provider": "static"},
        "logging": {"level": "debug"},
    }
    text = yaml.safe_dump(configuration)
    file = stage.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    file.write_text(text, "utf-8")
    return stage.serve("--config", str(file), env={"RIGLM_FILTERING__MODE": "enforce"})


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def initialize(origin, token, path="/mcp", **headers):
    """Status, headers and body of the answer to `initialize` with a token, or without one."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
    return await raw_post(origin + path, body, {**(bearer(token) if token else {}), **headers})


def client(origin, era, token, path="/mcp"):
    return RawClient(StreamableLink(origin + path, bearer(token), listen=False), era)


async def names(said):
    return {tool["name"] for tool in (await said.request("tools/list")).decoded()["tools"]}


def challenge(headers):
    """The parameters of a Bearer challenge."""
    scheme, _, parameters = headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', parameters))


async def test_the_metadata_leads_a_client_from_the_challenge_to_the_issuer(origin, issuer):
    status, headers, body = await initialize(origin, None)
    assert status == 401
    assert "access token is required" in json.loads(body)["error"]["message"]
    found = challenge(headers)
    assert found == {"resource_metadata": f"{origin}/.well-known/oauth-protected-resource/mcp", "scope": "tools"}
    metadata = httpx2.get(found["resource_metadata"])
    assert metadata.status_code == 200
    assert metadata.json() == {
        "resource": f"{origin}/mcp",
        "authorization_servers": [issuer.url],
        "bearer_methods_supported": ["header"],
        "resource_name": "riglm",
        "scopes_supported": ["tools"],
    }
    assert httpx2.get(f"{origin}/.well-known/oauth-protected-resource").json() == metadata.json()
    of_profile = httpx2.get(f"{origin}/.well-known/oauth-protected-resource/mcp/desk").json()
    assert of_profile["resource"] == f"{origin}/mcp/desk"
    assert httpx2.get(f"{origin}/.well-known/oauth-protected-resource/other").status_code == 404


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_token_of_the_issuer_opens_a_session(origin, issuer, era):
    assert (await initialize(origin, issuer.signed()))[0] == 200
    fetches = issuer.fetches
    async with client(origin, era, issuer.token("ann")) as said:
        await said.greet()
        assert "echo" in await names(said)
        assert "result" in (await said.call("echo", {"about": "x"})).parts
    assert issuer.fetches == fetches


async def test_a_key_without_an_algorithm_verifies_all_algorithms_of_its_type(origin, issuer):
    for algorithm in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"):
        assert (await initialize(origin, issuer.signed({"alg": algorithm})))[0] == 200, algorithm


async def test_a_token_may_expire_in_the_far_future_and_clocks_differ_by_five_minutes(origin, issuer):
    now = int(time.time())
    behind = issuer.signed(iat=now - 890, exp=now - 290)
    ahead = issuer.signed(iat=now + 290, nbf=now + 290, exp=now + 890)
    for token in (issuer.signed(exp=10**400), behind, ahead):
        assert (await initialize(origin, token))[0] == 200


def encoded(part):
    return (
        base64.urlsafe_b64encode(part if isinstance(part, bytes) else json.dumps(part).encode()).rstrip(b"=").decode()
    )


def forgeries(issuer):
    """Tokens that give no access, each with the reason that the client gets."""
    now, kid = int(time.time()), issuer.keys[0].kid
    other = RSAKey.generate_key(2048, {"use": "sig", "kid": kid})
    head, claims, signature = issuer.signed().split(".")
    shared = f"{encoded({'alg': 'HS256', 'kid': kid})}.{claims}"
    mac = hmac.digest(issuer.keys[0].as_pem(private=False), shared.encode(), "sha256")
    return [
        (issuer.signed(aud="https://other.example.org/mcp"), "is for a different audience"),
        (issuer.signed(aud=f"{AUDIENCE}/desk"), "is for a different audience"),
        (issuer.signed(iss="https://other.example.org"), "is of a different issuer"),
        (issuer.signed(exp=now - 400), "has expired"),
        (issuer.signed({"kid": "unknown"}), "is signed with an unknown key"),
        (f"{encoded({'alg': 'none'})}.{claims}.", "is not signed with an accepted algorithm"),
        (f"{shared}.{encoded(mac)}", "is not signed with an accepted algorithm"),
        (issuer.signed(key=other), "is invalid"),
        (f"{head}.{issuer.signed(sub='eve').split('.')[1]}.{signature}", "is invalid"),
        (issuer.signed(nbf=now + 400), "is invalid"),
        *((issuer.signed(**{claim: None}), "is invalid") for claim in ("sub", "aud", "exp", "iss")),
        (issuer.signed(sub=""), "names no subject"),
        (issuer.signed(sub="ann\nadmin"), "names no subject"),
        ("opaque", "is invalid"),
    ]


async def test_no_other_token_gives_access(stage, origin, issuer):
    for token, words in forgeries(issuer):
        status, headers, body = await initialize(origin, token)
        assert (status, json.loads(body)["error"]["message"]) == (401, f"Unauthorized: the token {words}")
        assert challenge(headers)["error"] == "invalid_token"
        assert challenge(headers)["resource_metadata"].endswith("/mcp")
    valid = issuer.token("ann")
    for token in (valid, "f" * 20):
        assert (await initialize(origin, token))[0] == 200
    log = (stage.folder / "riglm.stderr").read_text()
    assert "Traceback" not in log
    assert valid not in log


async def test_keys_rotate_and_outlast_an_outage_of_the_issuer(stage):
    with running_issuer() as issuer:
        origin = serve(stage, issuer, servers=light(stage))
        before = issuer.token("ann")
        assert (await initialize(origin, before))[0] == 200
        issuer.rotate(ECKey, "P-256")
        after = issuer.signed()
        assert (await initialize(origin, after))[0] == 200
        assert (await initialize(origin, before))[0] == 401, "its key is no longer published"
        issuer.is_down = True
        assert (await initialize(origin, issuer.signed(sub="bob")))[0] == 200
        status, headers, body = await initialize(origin, issuer.signed({"kid": "unknown"}))
        assert (status, headers["retry-after"]) == (503, "10")
        assert "cannot be fetched" in json.loads(body)["error"]["message"]


async def test_junk_does_not_make_riglm_fetch_keys_each_time(origin, issuer):
    tokens = [issuer.signed({"kid": f"unknown {number}"}) for number in range(50)]
    fetches, began = issuer.fetches, time.monotonic()
    answers = await asyncio.gather(*(initialize(origin, token) for token in tokens))
    assert {status for status, _, _ in answers} == {401}
    assert issuer.fetches - fetches <= 3 + (time.monotonic() - began)


async def test_scopes_are_required_as_configured(with_keys, issuer):
    status, headers, _ = await initialize(with_keys, issuer.token("ann", scope="tools"))
    assert status == 403
    assert challenge(headers)["error"] == "insufficient_scope"
    assert challenge(headers)["scope"] == "tools admin"
    assert (await initialize(with_keys, issuer.signed(scope=None, scp=SCOPES[::-1])))[0] == 200


async def test_keys_may_be_in_a_file(with_keys, issuer, monkeypatch):
    monkeypatch.setattr(issuer, "is_down", True)
    assert (await initialize(with_keys, issuer.signed(scope="tools admin")))[0] == 200


async def test_a_session_is_only_of_the_user_who_began_it(origin, issuer):
    ann, bob = issuer.token("ann"), issuer.token("bob")
    _, headers, _ = await initialize(origin, ann)
    session = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    body = b'{"jsonrpc":"2.0","id":2,"method":"ping"}'
    assert (await raw_post(f"{origin}/mcp", body, {**bearer(bob), **session}))[0] == 404
    assert (await raw_post(f"{origin}/mcp", body, {**bearer(ann), **session}))[0] == 200
    renewed = issuer.signed(sub="ann", jti="another")
    assert (await raw_post(f"{origin}/mcp", body, {**bearer(renewed), **session}))[0] == 200


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_group_sees_and_uses_what_its_rule_permits(stage, issuer, era):
    origin = serve(stage, issuer, access=ACCESS, tokens={"support": "s" * 20})
    developer, clerk = issuer.token("ann", "developers", "all"), issuer.token("bob", "support")
    async with client(origin, era, developer) as said:
        await said.greet()
        seen = await names(said)
        assert {name.partition("__")[0] for name in seen} == {"files", "shell"}
        assert "files__files_read_file" in seen
        assert "files__shell_run_command" not in seen
        assert "shell__tickets_list_tickets" in seen
        for denied in ("tickets__tickets_list_tickets", "files__shell_run_command", "Tickets__tickets_list_tickets"):
            assert "error" in (await said.call(denied, {"about": "x"})).parts
    for token in (clerk, "s" * 20):
        async with client(origin, era, token, "/mcp/desk") as said:
            await said.greet()
            assert {name.partition("__")[0] for name in await names(said)} == {"tickets"}
            assert "result" in (await said.call("tickets__files_read_file", {"about": "x"})).parts
    status, _, body = await initialize(origin, clerk)
    assert (status, b"its profiles are: desk" in body) == (404, True)
    status, _, body = await initialize(origin, issuer.token("eve", "visitors"))
    assert (status, b"no access rule is for the groups" in body) == (403, True)


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_meta_tools_reach_no_further_than_the_rule(stage, issuer, era):
    origin = serve(stage, issuer, access=ACCESS, is_filtered=True)
    async with client(origin, era, issuer.token("ann", "developers")) as said:
        await said.greet()
        await names(said)
        found = await said.call("search_available_tools", {"query": "list the open tickets", "limit": 20})
        words = json.dumps(found.decoded())
        assert "tickets__tickets" not in words.replace("shell__tickets", "")
        assert "shell__tickets_list_tickets" in words
        for name, is_permitted in {"tickets__tickets_list_tickets": False, "shell__tickets_list_tickets": True}.items():
            called = await said.call("call_tool", {"name": name, "arguments": {"about": "x"}})
            assert ("isError" not in called.decoded()) is is_permitted
            assert "tickets__tickets" not in json.dumps(called.decoded()).replace(name, "").replace(
                "shell__tickets", ""
            )


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_prompts_and_resources_of_other_servers_do_not_exist(stage, issuer, era):
    servers = {"mine": stage.entry("stdio"), "theirs": stage.entry("stdio")}
    origin = serve(stage, issuer, servers=servers, access={"*": {"servers": ["mine"]}})
    async with client(origin, era, issuer.token("ann")) as said:
        await said.greet()
        prompts = (await said.request("prompts/list")).decoded()["prompts"]
        assert {prompt["name"].partition("__")[0] for prompt in prompts} == {"mine"}
        named = prompts[0]["name"].replace("mine__", "theirs__")
        assert "error" in (await said.request("prompts/get", {"name": named})).parts


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_rule_holds_in_front_of_a_single_server(stage, issuer, era):
    servers = {"files": {"command": sys.executable, "args": [str(SERVER)]}}
    access = {"readers": {"servers": ["files"], "tools": ["files_*"]}}
    origin = serve(stage, issuer, servers=servers, access=access)
    async with client(origin, era, issuer.token("ann", "readers")) as said:
        await said.greet()
        assert {name.partition("_")[0] for name in await names(said)} == {"files"}
        assert "result" in (await said.call("files_read_file", {"about": "x"})).parts
        for denied in ("shell_run_command", "Shell_run_command"):
            assert "error" in (await said.call(denied, {"about": "x"})).parts
