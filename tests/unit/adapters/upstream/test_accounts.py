import asyncio
import stat
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest
from mcp.client.auth import OAuthFlowError

from riglm.adapters.mcp.oauth.accounts import Account, AccountFile
from riglm.adapters.mcp.oauth.ping import require_https
from riglm.adapters.mcp.oauth.signed_in_client import SignedInClient
from riglm.adapters.mcp.upstream.http_link import HttpEndpoint
from riglm.adapters.mcp.upstream.http_upstream import HttpUpstream
from riglm.adapters.mcp.upstream.sse_upstream import SseUpstream
from riglm.adapters.mcp.wire.http_client import HttpClient, HttpHeaders, Target
from riglm.container import Container
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import UpstreamSpec
from tests.unit.adapters.upstream.actors import QUICK, Ears, ask
from tests.unit.adapters.wire.peers import Answer, answering, serving
from tests.waiting import WAIT_SECONDS, wait_until_async

URL = "http://127.0.0.1:9/mcp"
PLAIN = Account(
    server="notes", url=URL, issuer="http://issuer", token_endpoint="http://127.0.0.1:9", client_id="c", access_token=""
)
GRANTED = b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"access_token":"newer"}'


def account(token="access-canary", server="notes", expires_in=3600):
    given = PLAIN.with_tokens(token, refresh_token="refresh-canary", scope="all", expires_in=expires_in)
    return replace(given, server=server)


@pytest.fixture
def accounts(tmp_path, monkeypatch) -> AccountFile:
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    return Container().account_file()


def test_accounts_are_kept_by_server_and_url_in_a_private_encrypted_file(accounts):
    assert accounts.list_accounts() == ()
    accounts.save(account())
    accounts.save(account("other", "aaa"))
    accounts.save(account("newer"))
    assert [each.access_token for each in accounts.list_accounts()] == ["other", "newer"]
    assert accounts.find(("notes", URL, "")).scope == "all"
    assert accounts.find(("notes", "http://elsewhere", "")) is None
    assert stat.S_IMODE(accounts.path.stat().st_mode) == 0o600
    assert b"canary" not in accounts.path.read_bytes()
    assert "canary" not in repr(account())
    accounts.delete(account())
    assert [each.server for each in accounts.list_accounts()] == ["aaa"]


def test_threads_that_save_at_once_lose_nothing(accounts):
    threads = [threading.Thread(target=accounts.save, args=(account(server=f"s{each}"),)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accounts.list_accounts()) == 8


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda _: b"", lambda data: data[:30] + b"x" + data[31:]])
def test_a_damaged_file_is_an_error_with_a_fix(accounts, damage):
    accounts.save(account())
    accounts.path.write_bytes(damage(accounts.path.read_bytes()))
    with pytest.raises(RiglmError, match=r"cannot be decrypted.* — fix: "):
        accounts.list_accounts()


@pytest.mark.parametrize("token", ["", "a b", "a\r\nx: y", "ä"])
def test_a_token_that_no_header_can_have_is_refused(token):
    with pytest.raises(RiglmError, match="characters that a header cannot have"):
        account(token)


@pytest.mark.parametrize(
    ("url", "is_accepted"),
    [
        ("https://remote/x", True),
        ("http://127.0.0.1:8/token", True),
        ("http://10.0.0.1/token", False),
        ("http://remote/revoke", False),
        ("file:///etc/passwd", False),
    ],
)
def test_a_sign_in_uses_https_except_on_loopback(url, is_accepted):
    with nullcontext() if is_accepted else pytest.raises(OAuthFlowError, match="does not use https"):
        require_https(url)


class Network:
    """Stands in for the HTTP client: keeps what is sent."""

    def __init__(self):
        self.sent = []

    def send(self, target, method, header_block, body, sink, exchange):
        exchange.sink = sink
        self.sent.append((header_block, body, exchange))
        return exchange


def sending(accounts):
    network = Network()
    client = SignedInClient(network, accounts, UpstreamSpec(name="notes", kind="http", url=URL))
    return network, lambda body=b"", sink=None: client.send(Target(URL), b"POST", b"a: b\r\n", body, sink or Answer())


async def settled(client_send_count, network):
    await wait_until_async(lambda: len(network.sent) >= client_send_count)


async def test_a_sign_in_after_answers_without_a_token_takes_effect_at_the_first_refusal(accounts):
    network, send = sending(accounts)
    sink = Answer()
    send(b"one", sink)
    network.sent[0][2].sink.head(200, HttpHeaders())
    accounts.save(account())
    send(b"two", sink)
    network.sent[1][2].sink.head(401, HttpHeaders())
    network.sent[1][2].end()
    await settled(3, network)
    assert network.sent[2][0].endswith(b"Bearer access-canary\r\n")


async def test_an_unreadable_file_fails_only_what_the_server_refuses(accounts):
    accounts.path.parent.mkdir()
    accounts.path.write_bytes(b"damaged")
    network, send = sending(accounts)
    sink = Answer()
    send(b"one", sink)
    await settled(1, network)
    exchange = network.sent[0][2]
    exchange.sink.head(401, HttpHeaders())
    exchange.sink.data(b"refused")
    exchange.end()
    async with asyncio.timeout(WAIT_SECONDS):
        await sink.over.wait()
    assert "cannot be decrypted" in str(sink.failure)
    assert sink.heard == ["failed"]


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize(
    ("status", "challenge", "words"),
    [
        (401, 'Bearer error="invalid_token"', "refused the credentials (HTTP 401): "),
        (403, 'Bearer error="insufficient_scope", scope="write"', "; it requires the scope write; it says: Ask Ann"),
    ],
)
async def test_a_refusal_of_an_account_keeps_the_text_of_the_server(accounts, kind, status, challenge, words):
    refusal = f"HTTP/1.1 {status} No\r\nWWW-Authenticate: {challenge}\r\nContent-Length: 7\r\n\r\nAsk Ann".encode()
    async with serving(answering(refusal)) as server:
        spec = UpstreamSpec(name="notes", kind=kind, url=server.url)
        accounts.save(replace(account(expires_in=None), url=server.url, refresh_token=""))
        client = HttpClient(environment={})
        place = HttpEndpoint(
            spec=spec,
            client=SignedInClient(client, accounts, spec),
            target=Target(server.url),
            timeout_seconds=QUICK,
            limit=1000,
        )
        upstream = SseUpstream(place) if kind == "sse" else HttpUpstream(place, lambda *_: None)
        found = await ask(upstream.connect(Ears()), 1, "initialize").words()
        await upstream.close()
        await client.close()
    assert words in found
    assert found.endswith("; it says: Ask Ann")


async def test_a_token_that_is_refused_while_the_account_is_read_again_is_renewed(accounts, monkeypatch):
    monkeypatch.setattr("riglm.adapters.mcp.oauth.signed_in_client._LOOK_SECONDS", 0)
    async with serving(answering(GRANTED)) as issuer:
        accounts.save(replace(account(), token_endpoint=f"http://127.0.0.1:{issuer.port}/token"))
        network, send = sending(accounts)
        send(b"one")
        await settled(1, network)
        accounts.save(account(server="other"))
        send(b"two")
        await asyncio.sleep(0)  # the reading has begun
        network.sent[0][2].sink.head(401, HttpHeaders())
        network.sent[0][2].end()
        await settled(3, network)
    assert [body for _, body, _ in network.sent] == [b"one", b"two", b"one"]
    assert all(block.endswith(b"Bearer newer\r\n") for block, *_ in network.sent[1:])
