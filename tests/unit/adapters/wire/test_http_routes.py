"""Ways to a server that are not a plain connection: TLS and proxies."""

import asyncio
import datetime as dt
import ipaddress
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from riglm.adapters.mcp.wire import dialing
from riglm.adapters.mcp.wire.dialing import VARIABLES, create_ssl_context
from riglm.adapters.mcp.wire.http_client import Target
from tests.unit.adapters.wire.peers import OK, Caller, Script, answering, client_for, free_port, post, serving


class Identity:
    """A self-made certificate for 127.0.0.1 and upstream.example, and both sides' contexts for it."""

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wire test")])
        now = dt.datetime.now(dt.UTC)
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("upstream.example")]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / "certificate.pem").write_bytes(pem)
        (folder / "key.pem").write_bytes(secret)
        self.pem = pem.decode()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(folder / "certificate.pem", folder / "key.pem")

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.pem)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity(tmp_path_factory.mktemp("identity"))


async def test_https_is_spoken_with_one_context_made_in_a_thread(identity: Identity) -> None:
    makers: list[threading.Thread] = []

    def make() -> ssl.SSLContext:
        makers.append(threading.current_thread())
        return identity.client()

    async with (
        serving(answering(OK), tls=identity.server) as one,
        serving(answering(OK), tls=identity.server) as other,
        client_for(ssl_context=make) as client,
    ):
        answers = [post(client, server.target)[0] for server in (one, other) for _ in range(5)]
        for answer in answers:
            assert (await answer.complete()).body == b"ok"
        await post(client, one.target)[0].complete()
        assert len(makers) == 1
        assert makers[0] is not threading.main_thread()


async def test_a_certificate_nobody_vouches_for_is_refused_before_anything_is_sent(identity: Identity) -> None:
    async with serving(answering(OK), tls=identity.server) as server, client_for() as client:
        failure = await post(client, server.target)[0].broken()
        assert not failure.sent
        assert "certificate" in str(failure).lower()
        assert isinstance(failure.__cause__, Exception)


async def test_a_certificate_for_another_host_is_refused(identity: Identity) -> None:
    async with serving(answering(OK), tls=identity.server) as server, client_for(ssl_context=identity.client) as client:
        failure = await post(client, Target(f"https://localhost:{server.port}/"))[0].broken()
        assert not failure.sent
        assert "certificate" in str(failure).lower()


async def test_https_to_a_server_of_plain_http_fails_before_anything_is_sent(identity: Identity) -> None:
    async with serving(answering(OK)) as server, client_for(ssl_context=identity.client) as client:
        server.script = garbage
        failure = await post(client, Target(f"https://127.0.0.1:{server.port}/"))[0].broken()
        assert not failure.sent


async def garbage(caller: Caller) -> None:
    await caller.reader.read(1)
    await caller.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def test_a_context_that_cannot_be_made_fails_the_request_and_is_tried_again(identity: Identity) -> None:
    tries = 0

    def make() -> ssl.SSLContext:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise LookupError("no CA file")
        return identity.client()

    async with serving(answering(OK), tls=identity.server) as server, client_for(ssl_context=make) as client:
        failure = await post(client, server.target)[0].broken()
        assert "no CA file" in str(failure)
        await post(client, server.target)[0].complete()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_that_accepts_and_says_nothing_takes_only_the_connect_timeout(
    scheme: str, identity: Identity
) -> None:
    async def script(caller: Caller) -> None:
        await caller.hang_up()

    environment = {"https_proxy": ""}
    async with serving(script) as server:
        if scheme == "http":
            environment["https_proxy"] = f"http://127.0.0.1:{server.port}"
        host = "127.0.0.1" if scheme == "https" else "upstream.example"
        async with client_for(ssl_context=identity.client, connect_timeout=0.2, environment=environment) as client:
            failure = await post(client, Target(f"https://{host}:{server.port}/"))[0].broken()
            assert "did not take the connection within 0.2 s" in str(failure)
            assert not failure.sent
        await server.settle()


def forwarding(seen: list[bytes]) -> Script:
    """A proxy: answers plain requests itself, and tunnels a CONNECT to 127.0.0.1 and the port that it names."""

    async def script(caller: Caller) -> None:
        while (request := await caller.request()) is not None:
            seen.append(request.raw)
            if not request.line.startswith("CONNECT "):
                await caller.say(OK)
                continue
            port = int(request.line.split(" ")[1].rsplit(":", 1)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            caller.writer.write(b"HTTP/1.1 200 Connection ")
            await asyncio.sleep(0)
            await caller.say(b"established\r\n\r\n")
            await asyncio.gather(pump(caller.reader, writer), pump(reader, caller.writer))

    return script


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_plain_requests_go_to_the_proxy_in_absolute_form() -> None:
    seen: list[bytes] = []
    async with serving(forwarding(seen)) as proxy:
        environment = {"HTTP_PROXY": f"http://me:pw@127.0.0.1:{proxy.port}", "NO_PROXY": "other.example"}
        async with client_for(environment=environment) as client:
            for _ in range(2):
                await post(client, Target("http://upstream.example/mcp?a=b"))[0].complete()
        assert (
            seen
            == [
                b"POST http://upstream.example/mcp?a=b HTTP/1.1\r\nHost: upstream.example\r\n"
                b"Accept-Encoding: identity\r\n"
                b"Proxy-Authorization: Basic bWU6cHc=\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            ]
            * 2
        )
        assert proxy.callers == 1


async def test_loopback_never_goes_to_the_proxy() -> None:
    async with serving(answering(OK)) as server:
        environment = {"HTTP_PROXY": f"http://127.0.0.1:{free_port()}"}
        async with client_for(environment=environment) as client:
            await post(client, server.target)[0].complete()


@pytest.mark.parametrize("credentials", ["", "me:pw@"])
async def test_https_goes_through_a_tunnel_and_is_checked_at_its_end(identity: Identity, credentials: str) -> None:
    seen: list[bytes] = []
    async with serving(forwarding(seen)) as proxy, serving(answering(OK), tls=identity.server) as server:
        environment = {"HTTPS_PROXY": f"http://{credentials}127.0.0.1:{proxy.port}"}
        async with client_for(environment=environment, ssl_context=identity.client) as client:
            for _ in range(3):
                await post(client, Target(f"https://upstream.example:{server.port}/mcp"))[0].complete()
            failure = await post(client, Target(f"https://another.example:{server.port}/mcp"))[0].broken()
            assert "certificate" in str(failure).lower()
        line = b"Proxy-Authorization: Basic bWU6cHc=\r\n" if credentials else b""
        authority = b"upstream.example:%d" % server.port
        assert seen[0] == b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, line)
        assert len(seen) == 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy answered 407"),
        (b"garbage\r\n\r\n", "the proxy does not use HTTP"),
        (b"", "the proxy closed the connection"),
        (b"a" * 50_000, "the proxy does not use HTTP"),
        (b"\r\n\r\n", "the proxy does not use HTTP"),
    ],
)
async def test_a_proxy_that_opens_no_tunnel_fails_the_request(said: bytes, reason: str, identity: Identity) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(said)

    async with serving(script) as proxy:
        environment = {"HTTPS_PROXY": f"http://me:pw@127.0.0.1:{proxy.port}"}
        async with client_for(environment=environment, ssl_context=identity.client) as client:
            failure = await post(client, Target("https://upstream.example/"))[0].broken()
            assert reason in str(failure)
            assert f"through the proxy {proxy.target.origin}" in str(failure)
            assert "pw" not in str(failure)
            assert not failure.sent


async def test_a_proxy_that_cannot_be_used_fails_the_request() -> None:
    async with client_for(environment={"HTTP_PROXY": "socks5://127.0.0.1:1"}) as client:
        failure = await post(client, Target("http://upstream.example/"))[0].broken()
        assert "HTTP_PROXY is not usable" in str(failure)
        assert not failure.sent


async def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two_addresses(_: Target) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    monkeypatch.setattr(dialing, "_addresses", two_addresses)
    async with serving(answering(OK)) as server, client_for() as client:
        await post(client, Target(f"http://localhost:{server.port}/"))[0].complete()


@pytest.mark.parametrize("variable", VARIABLES)
async def test_private_authorities_are_trusted_by_the_variables_that_others_use(
    identity: Identity, tmp_path: Path, variable: str
) -> None:
    (tmp_path / "authority.pem").write_text(identity.pem)
    environment = {variable: str(tmp_path / "authority.pem")}
    async with (
        serving(answering(OK), tls=identity.server) as server,
        client_for(ssl_context=lambda: create_ssl_context(environment=environment)) as client,
    ):
        assert (await post(client, server.target)[0].complete()).body == b"ok"


def test_certificates_that_cannot_be_read_are_logged_with_their_variable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.pem").write_text("no certificate")
    missing, broken = str(tmp_path / "missing.pem"), str(tmp_path / "broken.pem")
    create_ssl_context(environment={"NODE_EXTRA_CA_CERTS": missing, "REQUESTS_CA_BUNDLE": broken, "SSL_CERT_FILE": ""})
    assert [record.__dict__["variable"] for record in caplog.records] == ["NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"]
