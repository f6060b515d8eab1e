import pytest

from riglm.adapters.mcp.upstream.shared_process import SharedProcess
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from tests.unit.adapters.upstream.actors import QUICK, SPEC, Ears, ask, greeted, notification, settle

CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"


@pytest.fixture
def emptied() -> list[SharedProcess]:
    return []


@pytest.fixture
async def shared(wires, emptied):
    async def on_empty(shared: SharedProcess) -> None:
        emptied.append(shared)

    shared = SharedProcess(SPEC, wires, QUICK, on_empty)
    yield shared
    await shared.close()


class Client:
    """A client that has been greeted, unless it was told not to be."""

    def __init__(self, shared: SharedProcess) -> None:
        self.ears = Ears()
        self.client_link = shared.attach(self.ears)

    def ask(self, method, params=None, identifier=1):
        return ask(self.client_link, identifier, method, params)


@pytest.fixture
async def wire(shared, wires):
    """The wire of a process to which the clients `one` and `two` of the fixture `pair` are connected."""
    first = Client(shared)
    wire = await greeted(wires, first.client_link)
    second = Client(shared)
    again = second.ask("initialize")
    await again.result()
    second.client_link.send(notification("notifications/initialized"))
    wire.clients = (first, second)
    return wire


async def test_clients_that_open_at_the_same_time_share_the_answer(shared, wires):
    clients = [Client(shared) for _ in range(3)]
    answers = [client.ask("initialize", identifier=n) for n, client in enumerate(clients)]
    wire = await wires.number(1)
    clients[0].client_link.cancel(answers[0], None)
    clients[0].client_link.cancel(answers[0], None)
    wire.answer(wire.lines[0], {"protocolVersion": "2025-11-25"})
    for number in (1, 2):
        await answers[number].result()
        assert answers[number].raw["id"] == number
    assert (len(wire.lines), answers[0].over.is_set()) == (1, False)


async def test_a_cancelled_request_is_cancelled_under_the_id_that_the_server_knows(wire):
    one, two = (client.ask("tools/call") for client in wire.clients)
    client = wire.clients[0]
    client.client_link.cancel(one, notification("notifications/cancelled", {"requestId": 1}))
    client.client_link.send(notification("notifications/cancelled", {"requestId": 1}))
    assert wire.methods[-1] == "notifications/cancelled"
    assert [line["params"]["requestId"] for line in wire.lines if line.get("method") == "notifications/cancelled"] == [
        wire.lines[2]["id"]
    ]
    wire.answer(wire.lines[3], "mine")
    assert await two.result() == "mine"


async def test_a_changed_resource_is_told_to_its_subscribers_alone(wire):
    one, two = wire.clients
    for client, uri in ((one, "a:x"), (two, "a:x"), (two, "file:///d/")):
        answer = client.ask("resources/subscribe", {"uri": uri})
        wire.answer(wire.lines[-1])
        await answer.result()
    for uri in ("a:x", "file:///d/e", "file:///dir", "a:xy"):
        wire.notify(UPDATED, {"uri": uri})
    assert [len(client.ears.heard) for client in wire.clients] == [1, 2]


async def test_only_the_last_subscriber_unsubscribes_upstream(wire):
    for client in wire.clients:
        client.ask("resources/subscribe", {"uri": "a:x"})
        wire.answer(wire.lines[-1])
    one, two = wire.clients
    assert await one.ask("resources/unsubscribe", {"uri": "a:x"}).result() == {}
    assert wire.methods.count("resources/unsubscribe") == 0
    wire.notify(UPDATED, {"uri": "a:x"})
    assert [client.ears.methods for client in wire.clients] == [[], [UPDATED]]
    last = two.ask("resources/unsubscribe", {"uri": "a:x"})
    wire.answer(wire.sent("resources/unsubscribe"), {"x": 1})
    assert await last.result() == {"x": 1}
    wire.notify(UPDATED, {"uri": "a:x"})
    assert len(two.ears.heard) == 1


async def test_a_client_that_leaves_unsubscribes_from_what_nobody_else_wants(wire):
    one, two = wire.clients
    for client, uri in ((one, "a:mine"), (one, "a:ours"), (two, "a:ours")):
        client.ask("resources/subscribe", {"uri": uri})
        wire.answer(wire.lines[-1])
    await one.client_link.close()
    assert [line["params"] for line in wire.lines if line["method"] == "resources/unsubscribe"] == [{"uri": "a:mine"}]
    wire.answer(wire.lines[-1])
    wire.notify(UPDATED, {"uri": "a:mine"})
    wire.notify(CHANGED)
    assert (one.ears.heard, two.ears.methods) == ([], [CHANGED])


async def test_a_question_goes_to_the_client_whose_request_alone_is_in_flight(wire):
    one, two = wire.clients
    answer = two.ask("tools/call")
    wire.ask("q", "sampling/createMessage")
    [question] = answer.heard
    assert (one.ears.heard, question.id != b'"q"') == ([], True)
    one.client_link.send(jsonrpc.result(question.id, b'"forged"'))
    two.client_link.send(jsonrpc.result(question.id, b'"mine"'))
    two.client_link.send(jsonrpc.result(question.id, b'"twice"'))
    two.client_link.send(jsonrpc.result(b'"q"', b'"guessed"'))
    assert [line for line in wire.lines if "result" in line] == [{"jsonrpc": "2.0", "id": "q", "result": "mine"}]


@pytest.mark.parametrize("calls", [0, 2])
async def test_a_question_that_may_be_anybodys_is_refused(wire, calls):
    for client in wire.clients[:calls]:
        client.ask("tools/call")
    wire.ask("q", "sampling/createMessage")
    assert (wire.lines[-1]["id"], wire.lines[-1]["error"]["code"]) == ("q", -32601)
    assert [client.ears.heard for client in wire.clients] == [[], []]


async def test_a_client_that_leaves_refuses_what_it_was_asked_and_gives_up_what_it_asked(wire):
    one, _ = wire.clients
    answer = one.ask("tools/call")
    wire.ask("q", "elicitation/create")
    await one.client_link.close()
    await one.client_link.close()
    assert answer.failure[0] is ErrorKind.UNKNOWN
    assert wire.sent("notifications/cancelled")["params"]["requestId"] == wire.lines[2]["id"]
    assert (wire.lines[-1]["id"], wire.lines[-1]["error"]["message"]) == ("q", "The client has left")
    assert "cannot be asked any more" in await one.ask("tools/call").words()


async def test_after_a_crash_the_handshake_and_the_living_subscriptions_are_repeated(wire, wires):
    one, two = wire.clients
    for client, uri in ((one, "a:1"), (two, "a:2")):
        client.ask("resources/subscribe", {"uri": uri})
        wire.answer(wire.lines[-1])
    await one.client_link.close()
    wire.receiver.ended("was ended by signal 9")
    answer = two.ask("tools/call")
    second = await wires.number(2)
    second.answer(second.lines[0], {"protocolVersion": "2025-06-18"})
    await settle()
    assert second.methods == ["initialize", "notifications/initialized", "resources/subscribe", "tools/call"]
    assert second.lines[2]["params"] == {"uri": "a:2"}
    second.answer(second.lines[2])
    second.answer(second.lines[3], "works")
    assert await answer.result() == "works"
    third = Client(two.client_link._shared)
    assert await third.ask("initialize").result() == {"protocolVersion": "2025-06-18"}
