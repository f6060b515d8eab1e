"""A connection to several servers that another process goes on with: some know it by a ticket, others are told anew."""

import pytest

from riglm.application.aggregation.connection import MultiServerConnection
from riglm.application.aggregation.merged_lists import MergedListCache
from riglm.domain import jsonrpc
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller, ConnectionHandoff
from tests.unit.application.fakes import Channel, Link, Server, Sink, World, asks, opened, tools

CALLER = Caller(transport=Transport.HTTP)
HELLO = asks(0, "initialize", b'{"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"1"}}')
CHANGED = jsonrpc.notification("notifications/tools/list_changed")


class TicketLink(Link):
    """A way to a server whose session can be gone on with."""

    ticket = b""

    def request(self, message, reply):
        super().request(message, reply)
        if message.method == "initialize":
            self.ticket = b"ticket"

    def adopt(self, ticket, handshake, told):
        self.ticket = ticket
        return bool(ticket)

    def detach(self):
        self.ticket = b""


class TicketServer(Server):
    def connect(self, message_handler, principal=""):
        self.links.append(TicketLink(self, message_handler))
        return self.links[-1]


class Stage(World):
    """One process's side of the connection."""

    def __init__(self):
        super().__init__()
        hello = opened("tools", instructions="Be kind.")
        self.web = TicketServer("web", {"initialize": hello, "tools/list": tools("one")})
        self.own = Server("own", {"initialize": opened("tools"), "tools/list": tools("two")})
        self.channel = Channel()
        self.conversation = MultiServerConnection(
            self.services, [self.web, self.own], MergedListCache("prefix"), CALLER, self.channel
        )

    async def asks(self, message):
        sink = Sink()
        self.conversation.received(message, sink)
        return await sink.answer()

    async def lists(self):
        answer = await self.asks(asks(7, "tools/list"))
        return [tool["name"] for tool in jsonrpc.plain(answer.result)["tools"]]


async def carried_from(stage):
    await stage.asks(HELLO)
    return ConnectionHandoff(session=stage.conversation.session, handshake=HELLO, tickets=stage.conversation.tickets)


@pytest.fixture
async def handoff():
    return await carried_from(Stage())


async def test_only_servers_without_a_ticket_are_told_anew(handoff):
    assert list(handoff.tickets) == ["web"]
    stage = Stage()
    stage.sessions.adopt(handoff.session)
    assert not stage.conversation.adopt(handoff)
    answer = await stage.asks(HELLO)
    assert "initialize" not in stage.web.link.methods
    assert stage.own.link.methods[0] == "initialize"
    assert jsonrpc.plain(answer.result)["instructions"] == "# web\nBe kind."
    assert await stage.lists() == ["web__one", "own__two"]
    assert stage.conversation.session is handoff.session
    assert stage.conversation.tickets == handoff.tickets
    assert stage.records.opened == {handoff.session.id}


async def test_a_newer_ticket_takes_the_place_of_the_older(handoff):
    stage = Stage()
    await stage.asks(HELLO)
    newer = handoff.tickets["web"].replace(b':"ticket"', b':"newer"')
    stage.conversation.adopt(
        ConnectionHandoff(session=stage.conversation.session, handshake=HELLO, tickets={"web": newer})
    )
    assert stage.web.link.ticket == b"newer"


async def test_where_all_have_tickets_nobody_is_told_anew(handoff):
    stage = Stage()
    stage.conversation = MultiServerConnection(
        stage.services, [stage.web], MergedListCache("prefix"), CALLER, stage.channel
    )
    stage.sessions.adopt(handoff.session)
    stage.conversation.listen(listening=True)
    assert stage.conversation.adopt(handoff)
    assert stage.web.link.listening == [True]


@pytest.mark.parametrize("ticket", [b"", b"null", b"[1]", b'{"ticket":5}', b'{"ticket":""}'])
async def test_a_ticket_that_is_none_is_not_gone_on_with(handoff, ticket):
    stage = Stage()
    stage.sessions.adopt(handoff.session)
    assert not stage.conversation.adopt(
        ConnectionHandoff(session=handoff.session, handshake=HELLO, tickets={"web": ticket})
    )
    await stage.asks(HELLO)
    assert "initialize" in stage.web.link.methods


async def test_a_list_that_changed_elsewhere_is_fetched_again_and_told_to_who_listens_here():
    stage = Stage()
    await stage.asks(HELLO)
    assert await stage.lists() == ["web__one", "own__two"]
    stage.web.answers["tools/list"] = tools("one", "three")
    stage.conversation.heard(CHANGED)
    stage.conversation.heard(jsonrpc.notification("notifications/message"))
    assert stage.channel.told == [CHANGED.line]
    assert await stage.lists() == ["web__one", "web__three", "own__two"]


async def test_a_connection_that_is_left_to_others_ends_nothing_of_theirs():
    stage = Stage()
    stage.conversation.detach()
    await stage.asks(HELLO)
    stage.conversation.detach()
    assert stage.web.link.ticket == b""
    await stage.conversation.close()
    assert stage.records.closed == []
