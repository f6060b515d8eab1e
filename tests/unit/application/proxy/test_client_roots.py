"""The project of a client over HTTP is its first root; a client that declares none is never asked."""

from dataclasses import replace

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.session import Session, Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Server, Sink, asks, opened, tools
from tests.unit.application.proxy.scripted import ShowingWorld

ROOTS = b'{"capabilities":{"roots":{"listChanged":true}}}'
INITIALIZED = jsonrpc.notification("notifications/initialized")
CHANGED = jsonrpc.notification("notifications/roots/list_changed")


class Client:
    """A client, and riglm in front of one server or two."""

    def __init__(self, *, transport=Transport.HTTP, filters=True, servers=1, world=None, address="127.0.0.1"):
        self.world = world or ShowingWorld(
            find_project=lambda path: "/repository" if path.startswith("/work") else "", meta_keys=("threadId",)
        )
        self.channel = Channel()
        self.servers = [
            Server(name, {"initialize": opened("tools"), "tools/list": tools("a")}) for name in ("one", "two")[:servers]
        ]
        parts = self.world.parts
        parts = parts if filters else replace(parts, filtering=None, meta_tools=None, list_changes=None)
        caller = Caller(transport=transport, address=address)
        self.connection = ProxyService(parts, self.servers).connect(caller, self.channel)

    async def opens(self, params=ROOTS):
        sink = self.sends(asks(0, "initialize", params))
        assert (await sink.answer()).result
        self.sends(INITIALIZED)

    def sends(self, message):
        sink = Sink()
        self.connection.receive(message, sink)
        return sink

    @property
    def questions(self):
        return [asked for line in self.channel.told if (asked := jsonrpc.decode(line)).method == "roots/list"]

    async def answers(self, *uris, raw=b"", question=-1):
        roots = [{"uri": uri} for uri in uris]
        result = raw or jsonrpc.encode({"roots": roots})
        self.sends(jsonrpc.result(self.questions[question].id, result))
        if (task := self.connection._roots._task) is not None:
            await task

    @property
    def session(self):
        return self.connection.session

    def hash(self, path):
        return self.world.hasher.project(path)

    @property
    def sent(self):
        return [line for server in self.servers for line in server.link.sent]


@pytest.fixture(
    params=[(True, 1), (False, 1), (True, 2), (False, 2)], ids=["one", "one unfiltered", "two", "two unfiltered"]
)
async def client(request):
    filters, servers = request.param
    made = Client(filters=filters, servers=servers)
    yield made
    await made.connection.close()


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/ann/shop", "/home/ann/shop"),
        ("file:///home/ann/shop/", "/home/ann/shop"),
        ("file:///home/ann/sh%C3%B6p%20x", "/home/ann/shöp x"),
        ("file:///work/shop/src", "/repository"),
    ],
)
async def test_the_first_root_is_the_project_of_the_session_and_recorded_as_a_hash(client, uri, path):
    await client.opens()
    await client.answers(uri, "file:///other")
    assert client.session.project == client.hash(path)
    assert client.world.records.of(Session)[-1].project == client.hash(path)
    assert path not in str(client.world.records.all)
    assert not any(b"riglm-roots" in line for line in client.sent), "the answer concerns no server"


async def test_directories_of_another_machine_are_not_looked_for_on_this_one():
    client = Client(address="192.0.2.1")
    await client.opens()
    await client.answers("file:///work/shop/src")
    assert client.session.project == client.hash("/work/shop/src")
    await client.connection.close()


@pytest.mark.parametrize("params", [b"{}", b'{"capabilities":{}}', b'{"capabilities":{"sampling":{}}}'])
async def test_a_client_that_declares_no_roots_is_not_asked(client, params):
    await client.opens(params)
    client.connection.listen(listening=True)
    client.sends(CHANGED)
    assert client.questions == []


@pytest.mark.parametrize("transport", [Transport.STDIO, Transport.LIBRARY])
async def test_a_client_that_works_where_riglm_was_started_is_not_asked(transport):
    client = Client(transport=transport)
    await client.opens()
    client.connection.listen(listening=True)
    assert client.questions == []
    await client.connection.close()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"roots":[]}',
        b'{"roots":[{"uri":"file:///"}]}',
        b'{"roots":[{"uri":"https://example.org/x"}]}',
        b'{"roots":[{"uri":"file://["}]}',
        b'{"roots":[{"uri":"file:relative"}]}',
        b'{"roots":[{"uri":7}]}',
        b'{"roots":{}}',
        b"[]",
    ],
)
async def test_an_answer_without_a_directory_leaves_the_session_without_a_project(client, raw):
    await client.opens()
    await client.answers(raw=raw)
    assert client.session.project == ""
    client.connection.listen(listening=True)
    assert len(client.questions) == 1, "it answered"


async def test_a_client_whose_roots_change_is_asked_again(client):
    await client.opens()
    await client.answers(raw=b'{"roots":[]}')
    client.sends(CHANGED)
    await client.answers("file:///home/ann/shop")
    assert client.session.project == client.hash("/home/ann/shop")
    client.sends(CHANGED)
    await client.answers("file:///home/ann/other")
    assert client.session.project == client.hash("/home/ann/other")
    assert client.sent.count(CHANGED.line) == 2 * len(client.servers), "servers learn of it as before"


async def test_a_riglm_behind_a_riglm_gets_the_answers_to_its_questions(client):
    await client.opens()
    inner = b'"riglm-roots:01890000-0000-7000-8000-000000000000:1"'
    client.sends(jsonrpc.result(inner, b'{"roots":[{"uri":"file:///home/ann/shop"}]}'))
    assert client.session.project == ""
    if len(client.servers) == 1:
        assert any(inner in line for line in client.sent)
