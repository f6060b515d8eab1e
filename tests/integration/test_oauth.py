"""Sign-in at OAuth-protected servers, against Authlib's authorization server and servers of the MCP SDK."""

import asyncio
import contextlib
import gzip
import json
import re
import socket
import stat
import subprocess
from dataclasses import replace

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc.jwk import ECKey, RSAKey
from mcp.client.auth import OAuthFlowError
from starlette.responses import Response

from riglm.adapters.mcp.oauth.ping import require_safe
from riglm.container import Container
from riglm.domain.upstream import OAuthClient as OAuthClientSpec
from riglm.domain.upstream import UpstreamSpec
from tests.integration.oauth import PATHS, sites
from tests.integration.oauth import Client as OAuthClient
from tests.integration.oauth_home import SECONDS, Home, add, redirect_of
from tests.preloaded import riglm_command
from tests.waiting import wait_until_async

TEAM = {"client_id": "riglm-team", "client_secret": "s3cret/+"}


async def double(client):
    result = await client.call_tool("open__double", {"a": 2})
    return result.content[0].text


@pytest.fixture
def places(monkeypatch):
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with sites() as found:
        yield found


@pytest.fixture
def issuer(places):
    return places[0]


@pytest.fixture
def home(places, tmp_path):
    return Home(tmp_path, *places[1:])


async def test_login_accepts_a_pasted_url_and_calls_are_signed(home, issuer):
    with home.logging_in("--no-browser") as (process, url):
        process.stdin.write("http://127.0.0.1/callback?code=x&state=forged\n" + redirect_of(url) + "\n")
        process.stdin.flush()
    (asked,) = issuer.authorizations
    assert (asked["code_challenge_method"], asked["scope"]) == ("S256", "notes")
    assert asked["resource"].endswith("/mcp")
    async with home.client() as client:
        assert await add(client) == "2"
        assert await double(client) == "4"
    assert issuer.refreshes == 0


async def test_a_server_of_the_older_transport_is_signed_in_to_as_well(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with sites(is_sse=True) as (issuer, *urls):
        home = Home(tmp_path, *urls)
        home.log_in()
        async with home.client() as client:
            assert await add(client) == "2"
            issuer.expire()
            assert await asyncio.gather(add(client), add(client)) == ["2", "2"]
    assert issuer.refreshes == 1


def test_login_receives_the_redirect_on_loopback_and_ignores_other_requests(home, issuer):
    with home.logging_in(BROWSER="true") as (_, url):
        location = redirect_of(url)
        assert httpx2.get(location.partition("?")[0] + "?code=x&state=forged").status_code == 400
        assert httpx2.get(location.replace("/callback", "/favicon.ico")).status_code == 400
        assert "Signed in" in httpx2.get(location).text
    code, out, _ = home.run("accounts", "--json")
    assert code == 0
    (account,) = json.loads(out)
    assert (account["server"], account["issuer"], account["scopes"]) == ("notes", issuer.url, ["notes"])
    assert "notes" in home.run("accounts")[1]


def test_login_reports_a_refusal(home):
    with home._login("--no-browser") as (process, url):
        state = re.search(r"state=([^&]+)", url)[1]
        _, err = process.communicate(f"http://127.0.0.1/callback?error=access_denied&state={state}\n", SECONDS)
    assert process.returncode == 1
    assert "the authorization server refused: access_denied" in err
    assert "Traceback" not in err


def test_login_names_the_servers_that_can_be_signed_in_to(home):
    code, _, err = home.run("login", "absent")
    assert code == 2
    assert "use one of notes, open" in err
    code, _, err = home.run("login", "open", "--no-browser")
    assert code == 1
    assert "open does not require a sign-in" in err


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_configured_client_signs_in_with_its_secret_and_scopes(places, tmp_path, method, monkeypatch):
    issuer = places[0]
    monkeypatch.setattr("tests.integration.oauth.METHODS", [method])
    metadata = {"redirect_uris": ["*"], "token_endpoint_auth_method": method}
    issuer.clients["riglm-team"] = OAuthClient("riglm-team", "s3cret/+", metadata)
    auth = {**TEAM, "issuer": issuer.url, "scopes": ["notes", "more"]}
    home = Home(tmp_path, *places[1:], auth)
    home.log_in()
    assert issuer.authorizations[0]["scope"] == "notes more"
    assert list(issuer.clients) == ["riglm-team"]
    assert "s3cret" not in home.run("config", "show")[1]
    issuer.expire()
    async with home.client() as client:
        assert await add(client) == "2"
    assert issuer.refreshes == 1


async def test_a_client_with_a_secret_gets_tokens_without_a_user(places, tmp_path):
    issuer = places[0]
    metadata = {"token_endpoint_auth_method": "client_secret_basic"}
    issuer.clients["riglm-team"] = OAuthClient("riglm-team", "s3cret/+", metadata)
    auth = {**TEAM, "issuer": issuer.url, "grant_type": "client_credentials", "scopes": ["notes"]}
    home = Home(tmp_path, *places[1:], auth)
    async with home.client() as client, home.client() as other:
        assert await asyncio.gather(add(client), add(other)) == ["2", "2"]
        assert len(issuer.tokens) == 1
        issuer.expire()
        assert await asyncio.gather(*(add(client, number) for number in range(20))) == [str(n + 1) for n in range(20)]
        assert len(issuer.tokens) == 2
        issuer.clients["riglm-team"].client_secret = "changed"
        issuer.expire()
        assert "no access token: notes: the grant client_credentials failed" in await add(client)
        assert await double(client) == "4"
    assert issuer.refreshes == 0
    secrets = [*issuer.secrets(), b"s3cret"]
    for file in (*home.data.rglob("*"), home.directory / "log"):
        assert not file.is_file() or not any(secret in file.read_bytes() for secret in secrets), file


@pytest.mark.parametrize("key", [RSAKey.generate_key(2048), ECKey.generate_key("P-256")], ids=["rsa", "ec"])
async def test_a_client_with_a_private_key_gets_tokens_without_a_user(places, tmp_path, key):
    issuer = places[0]
    issuer.require_assertions()
    metadata = {"token_endpoint_auth_method": "private_key_jwt", "public_key": key}
    issuer.clients["riglm-team"] = OAuthClient("riglm-team", "", metadata)
    file = tmp_path / "key.pem"
    auth = {"grant_type": "client_credentials", "client_id": "riglm-team", "issuer": issuer.url, "scopes": ["notes"]}
    home = Home(tmp_path, *places[1:], {**auth, "private_key_file": str(file)})
    async with home.client() as client:
        assert f"{file} cannot be read: No such file" in await add(client)
    file.write_bytes(key.as_pem(private=True))
    code, out, err = home.run("login", "notes")
    assert (code, out) == (0, f"signed in to notes at {issuer.url}\n"), err
    async with home.client() as client:
        assert await add(client) == "2"


@pytest.mark.parametrize("curve", [ec.SECP224R1(), ec.SECP256K1()])
def test_a_private_key_of_an_unsupported_kind_is_an_error_with_a_fix(places, tmp_path, curve):
    file = tmp_path / "key.pem"
    pem = ec.generate_private_key(curve).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(pem)
    grant = {"grant_type": "client_credentials", "client_id": "robot", "issuer": places[0].url}
    code, _, err = Home(tmp_path, *places[1:], {**grant, "private_key_file": str(file)}).run("login", "notes")
    assert code == 1
    assert "fix: create an RSA, P-256" in err
    assert "Traceback" not in err


async def test_a_call_that_lacks_a_scope_names_the_command_which_then_requests_it(home, issuer):
    home.log_in()
    async with home.client() as client:
        assert await add(client) == "2"
        issuer.scope_of_calls = "more"
        assert "riglm login notes" in await add(client)
        assert await double(client) == "4"
        home.log_in()
        assert await add(client) == "2"
    assert issuer.authorizations[-1]["scope"].split() == ["notes", "more"]


def test_a_configured_client_is_not_used_at_other_authorization_servers(places, tmp_path):
    home = Home(tmp_path, *places[1:], {**TEAM, "issuer": "https://login.example.org"})
    code, _, err = home.run("login", "notes", "--no-browser")
    assert code == 1
    assert f"uses the authorization server {places[0].url}" in err
    assert not places[0].tokens


def test_without_an_issuer_a_configured_client_is_not_used_at_several_hosts(places, tmp_path, monkeypatch):
    monkeypatch.setitem(PATHS, "token", "http://localhost:9/token")
    code, _, err = Home(tmp_path, *places[1:], TEAM).run("login", "notes", "--no-browser")
    assert code == 1
    assert "uses several hosts" in err
    assert not places[0].authorizations


def test_a_failed_sign_in_shows_the_error_of_the_server_but_no_token(home, issuer, monkeypatch):
    secret = {"access_token": "canary", "error": "\x1b[2Jinvalid", "error_description": "no such code"}
    monkeypatch.setattr(issuer, "handle_response", lambda *_: Response(json.dumps(secret), 206))
    issuer.clients["riglm-team"] = OAuthClient("riglm-team", "", {"redirect_uris": ["*"]})
    code, _, err = home.run("login", "notes", "--no-browser")
    assert code == 1
    assert "answered HTTP 206: ?[2Jinvalid: no such code" in err
    assert "canary" not in err


@pytest.mark.parametrize(
    ("body", "encoding", "problem"),
    [
        (lambda: gzip.compress(bytes(64 << 20)), "gzip", "compressed"),
        (lambda: bytes(2 << 20), "identity", "more than 1048576 bytes"),
    ],
)
def test_a_sign_in_reads_no_response_of_any_size(home, issuer, monkeypatch, body, encoding, problem):
    response = Response(body(), 200, {"content-encoding": encoding})
    monkeypatch.setattr(issuer, "handle_response", lambda *_: response)
    code, _, err = home.run("login", "notes", "--no-browser")
    assert code == 1
    assert problem in err


async def test_unusual_members_of_a_response_lose_no_token(home, issuer, monkeypatch):
    home.log_in()
    unusual = {"expires_in": "soon", "scope": ["notes"], "error": None}
    respond = issuer.handle_response
    monkeypatch.setattr(issuer, "handle_response", lambda status, body, head: respond(status, body | unusual, head))
    async with home.client() as client:
        for refreshes in (1, 2):
            issuer.expire()
            assert await add(client) == "2"
            assert issuer.refreshes == refreshes


@pytest.mark.parametrize(
    ("server", "issuer_url", "url", "is_safe"),
    [
        ("https://mcp.example.org/mcp", "", "https://login.example.org/token", True),
        ("https://mcp.example.org/mcp", "", "http://login.example.org/token", False),
        ("https://mcp.example.org/mcp", "", "http://127.0.0.1:8080/token", False),
        ("https://mcp.example.org/mcp", "", "https://[::1]/token", False),
        ("https://mcp.example.org/mcp", "", "https://LOCALHOST/token", False),
        ("https://mcp.example.org/mcp", "http://localhost:8080", "http://localhost:8080/token", True),
        ("http://127.0.0.1:8000/mcp", "", "http://localhost:8080/token", True),
    ],
)
def test_a_server_elsewhere_cannot_send_a_sign_in_to_this_machine(server, issuer_url, url, is_safe):
    spec = UpstreamSpec(name="notes", kind="http", url=server, oauth=OAuthClientSpec(issuer=issuer_url))
    with contextlib.nullcontext() if is_safe else pytest.raises(OAuthFlowError):
        require_safe(url, spec)


@pytest.mark.parametrize("issuer_url", ["https://ada:s3cret@login.example.org", "login.example.org", "https://"])
def test_an_issuer_is_a_url_without_a_password(places, tmp_path, issuer_url):
    code, out, err = Home(tmp_path, *places[1:], {**TEAM, "issuer": issuer_url}).run("config", "show")
    assert code == 2
    assert "auth.issuer" in err
    assert "s3cret" not in out + err


def test_login_finds_out_before_the_sign_in_that_tokens_cannot_be_stored(home, issuer):
    home.data.write_text("a file")
    code, _, err = home.run("login", "notes", "--no-browser")
    assert code == 1
    assert "cannot be written" in err
    assert not issuer.clients


def test_riglm_ends_while_an_authorization_server_never_completes_its_answer(home, monkeypatch):
    monkeypatch.setenv("RIGLM_DATA_DIR", str(home.data))
    home.log_in()
    accounts = Container().account_file()
    (account,) = accounts.list_accounts()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}/token"
        accounts.save(replace(account, token_endpoint=endpoint, refresh_at=0.0, expires_at=0.0))
        process = subprocess.Popen(
            riglm_command("run", "--config", "riglm.yaml"),
            cwd=home.directory,
            env=home.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": started}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        listener.settimeout(SECONDS)
        asked, _ = listener.accept()
        with asked:
            asked.sendall(b"HTTP/1.1 200 OK\r\n")
            process.stdin.close()
            for _ in range(SECONDS):
                with contextlib.suppress(subprocess.TimeoutExpired, ConnectionError):
                    asked.sendall(b"x")
                    process.wait(1)
                    break
            assert process.poll() == 0


async def test_the_token_is_refreshed_before_it_expires(home, issuer):
    issuer.lifetime = 5
    home.log_in()
    async with home.client() as client:
        async with asyncio.timeout(SECONDS):
            while not issuer.refreshes:
                assert await add(client) == "2"
                await asyncio.sleep(0.1)
        assert await add(client) == "2"
    assert not re.search(r"HTTP 401|refused the credentials", (home.directory / "log").read_text())


async def test_a_burst_of_calls_after_the_expiry_refreshes_once_and_fails_none(home, issuer):
    home.log_in()
    issuer.seconds = 0.5
    async with home.client() as client, home.client() as other:
        assert (await add(client), await add(other)) == ("2", "2")
        issuer.expire()
        calls = [add(client if number % 2 else other, number) for number in range(100)]
        found = await asyncio.gather(*calls)
    assert found == [str(number + 1) for number in range(100)]
    assert issuer.refreshes == 1


async def test_a_revoked_refresh_token_names_the_command_and_leaves_other_servers_alone(home, issuer):
    home.log_in()
    async with home.client() as client:
        assert await add(client) == "2"
        for token in issuer.tokens.values():
            token.revoked = token.refresh_revoked = True
        found = await asyncio.gather(add(client), add(client), double(client))
        assert all("riglm login notes" in each for each in found[:2]), found
        assert found[2] == "4"
        assert "riglm login notes" in await add(client)
        assert issuer.refreshes == 1
        home.log_in()
        assert await add(client) == "2"


async def test_an_unavailable_issuer_fails_calls_only_until_it_is_back(home, issuer, monkeypatch):
    home.log_in()
    async with home.client() as client:
        assert await add(client) == "2"
        issuer.expire()
        with monkeypatch.context() as broken:
            broken.setattr(issuer, "with_refresh_token", lambda _: 1 / 0)
            found = await add(client)
            assert "no access token" in found
            assert await double(client) == "4"
        assert await add(client) == "2"


async def test_without_a_sign_in_calls_and_doctor_name_the_command(home, issuer):
    async with home.client() as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["open__double"]
        assert await double(client) == "4"
    code, out, _ = home.run("doctor", "--config", "riglm.yaml", "--json", "--only", "servers")
    assert code == 1
    (finding,) = [each for each in json.loads(out)["findings"] if each["place"] == "notes"]
    assert "riglm login notes" in finding["fix"]
    home.log_in()
    assert home.run("doctor", "--config", "riglm.yaml", "--only", "servers")[0] == 0


async def test_a_running_process_uses_the_account_of_a_later_sign_in_and_none_after_a_logout(home, issuer):
    home.log_in()
    async with home.client() as client:
        assert await add(client) == "2"
        first = set(issuer.tokens)
        home.log_in()
        for token in first:
            issuer.tokens[token].revoked = issuer.tokens[token].refresh_revoked = True
        await asyncio.sleep(1.1)
        assert await add(client) == "2"
        assert issuer.refreshes == 0
        (home.data / "accounts").unlink()

        async def is_refused():
            return "riglm login notes" in await add(client)

        await wait_until_async(is_refused)


async def test_a_refused_client_keeps_its_refresh_token(home, issuer):
    home.log_in()
    async with home.client() as client:
        assert await add(client) == "2"
        issuer.expire()
        known = dict(issuer.clients)
        issuer.clients.clear()
        assert "auth.client_secret" in await add(client)
        issuer.clients.update(known)
        assert await add(client) == "2"


async def test_logout_revokes_and_deletes_the_tokens(home, issuer):
    home.log_in()
    async with home.client() as client:
        assert await add(client) == "2"
        code, out, _ = home.run("logout", "notes", "--json")
        assert (code, json.loads(out)[0]["revoked"]) == (0, True)
        assert "riglm login notes" in await add(client)
    assert all(token.revoked for token in issuer.tokens.values())
    assert json.loads(home.run("accounts", "--json")[1]) == []
    code, _, err = home.run("logout", "notes")
    assert code == 1
    assert "there is no account for notes" in err


async def test_tokens_are_in_no_file_and_no_log_in_plain_text(home, issuer):
    home.log_in()
    async with home.client() as client:
        assert await add(client) == "2"
        issuer.expire()
        assert await add(client) == "2"
        for token in issuer.tokens.values():
            token.revoked = token.refresh_revoked = True
        await add(client)
    secrets = issuer.secrets()
    assert len(secrets) == 4
    files = [path for path in home.directory.rglob("*") if path.is_file()]
    assert {"accounts", "riglm.db", "log"} <= {path.name for path in files}
    assert not [path for path in files if any(secret in path.read_bytes() for secret in secrets)]
    assert b"debug" in (home.directory / "log").read_bytes()
    assert stat.S_IMODE((home.data / "accounts").stat().st_mode) == 0o600
    (home.data / "riglm.key").write_bytes(b"k" * 32)
    code, _, err = home.run("accounts")
    assert code == 1
    assert "cannot be decrypted" in err
