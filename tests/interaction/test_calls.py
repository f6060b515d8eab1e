import asyncio

from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, MODERN, Exchange, RawClient
from tests.interaction.log import Entry, ServerLog
from tests.interaction.route import CORNERS, CROSSED, HTTP_FRONT, MAIN, Route, routes
from tests.interaction.stage import Stage

MODERN_LEVEL = "io.modelcontextprotocol/logLevel"


async def held(client: RawClient, log: ServerLog, marker: str, **more: object) -> Exchange:
    """A call that the server has taken up and holds."""
    exchange = await client.start_call("slow", {"hold": True, "marker": marker, **more})
    await log.wait_for(lambda entry: entry.event == "holding" and entry.details["marker"] == marker)
    return exchange


def cancelled(log: ServerLog) -> list[Entry]:
    return log.entries("cancelled")


@routes(CROSSED)
async def test_one_request_of_the_client_is_one_request_upstream(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route) as client:
        await client.call("nonce", {"nonce": "first"})
        log.mark()
        await client.call("nonce", {"nonce": "second"})
        assert log.requests() == ["tools/call"]
        await client.request("prompts/get", {"name": "greet"})
        await client.request("resources/read", {"uri": "note://scripted/one"})
        assert log.requests() == ["tools/call", "prompts/get", "resources/read"]


@routes(CROSSED)
async def test_many_clients_with_the_same_ids_get_their_own_answers(actors: Stage, route: Route):
    own_process = route.front == "stdio" or (route.back == "stdio" and route.era == HANDSHAKE)
    clients, calls = (4 if own_process else 50), 6

    async def one(number: int) -> list[str]:
        group = f"{route}/{number}"
        async with actors.client(route) as client:
            exchanges = [
                await client.start_call("barrier", {"group": group, "size": calls, "nonce": f"{group}/{call}"})
                for call in range(calls)
            ]
            answers = [await exchange.answer() for exchange in exchanges]
            assert client.strays == []
            return [answer.words for answer in answers]

    found = await asyncio.gather(*(one(number) for number in range(clients)))
    assert found == [[f"{route}/{number}/{call}" for call in range(calls)] for number in range(clients)]


@routes(CORNERS)
async def test_many_calls_at_once_of_one_client_get_their_own_answers(actors: Stage, route: Route):
    async with actors.client(route) as client:
        exchanges = [await client.start_call("nonce", {"nonce": f"n{number}"}) for number in range(100)]
        assert [(await exchange.answer()).words for exchange in exchanges] == [f"n{number}" for number in range(100)]


@routes(CROSSED)
async def test_progress_reaches_the_caller_before_the_answer(actors: Stage, route: Route):
    wanted = b'{"progressToken":%b,"progress":%d.0,"total":3,"message":"step \\u0061","x":1.50}'
    async with actors.client(route) as client:
        for token in (b'"t\\u0061"', b"7", b'"7"', b"9007199254740993"):
            client.notifications.clear()
            exchange = await client.start_call("slow", {"steps": 3}, meta=b'{"progressToken":' + token + b"}")
            await exchange.answer()
            told = [message for message in client.notifications if message.method == "notifications/progress"]
            assert [message.params for message in told] == [wanted % (token, step) for step in (1, 2, 3)]
            if route.front == "http":
                assert {message.stream for message in told} == {exchange.stream}


@routes(CROSSED)
async def test_clients_with_the_same_token_get_their_own_progress(actors: Stage, route: Route):
    async with actors.client(route) as one, actors.client(route) as other:
        exchanges = [
            await client.start_call("slow", {"steps": steps}, meta={"progressToken": "same"}, id="same")
            for client, steps in ((one, 2), (other, 5))
        ]
        for exchange in exchanges:
            await exchange.answer()
        for client, steps in ((one, 2), (other, 5)):
            told = [message for message in client.notifications if message.method == "notifications/progress"]
            assert [message.decoded("params")["total"] for message in told] == [steps] * steps


@routes(CROSSED)
async def test_log_messages_reach_the_client_that_asked(actors: Stage, route: Route):
    async with actors.client(route) as client:
        meta = None
        if route.era == HANDSHAKE:
            assert (await client.request("logging/setLevel", {"level": "warning"})).result == b"{}"
        else:
            meta = {MODERN_LEVEL: "warning"}
        for level in ("info", "error"):
            await client.call("log", b'{"level":"%b","data":{"n":1.0,"s":"\\u0061"}}' % level.encode(), meta=meta)
        told = await client.wait_for("notifications/message")
    assert told.params == b'{"level":"error","logger":"scripted","data":{"n":1.0,"s":"\\u0061"},"x":1.0}'


@routes(MAIN + CROSSED[-1:])
async def test_a_cancelled_call_is_cancelled_upstream_for_the_same_reason(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        exchange = await held(client, log, f"{route}")
        await exchange.cancel()
        await log.wait_for_event("cancelled")
        assert (await client.call("nonce", {"nonce": "after"})).words == "after"
        assert not exchange.outcome.done() or exchange.outcome.exception()
    assert [entry.details["method"] for entry in cancelled(log)] == ["tools/call"]
    if route.era == HANDSHAKE:
        (notice,) = log.received("notifications/cancelled")
        assert text.at_path(notice.parts["params"], "reason") == b'"changed \\u006dy mind"'


@routes(CORNERS)
async def test_cancelling_one_call_leaves_the_others(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        first = await held(client, log, f"first {route}")
        second = await held(client, log, f"second {route}")
        await first.cancel()
        await log.wait_for_event("cancelled")
        assert (await client.call("nonce", {"nonce": "between"})).words == "between"
        assert len(cancelled(log)) == 1
        await second.cancel()
        await log.wait_for(lambda _: len(cancelled(log)) == 2)


@routes(HTTP_FRONT)
async def test_cancelling_an_id_leaves_other_clients_calls_with_that_id(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as one, actors.client(route) as other:
        mine = await one.start_call("slow", {"hold": True, "marker": f"mine {route}"}, id="same")
        await log.wait_for(lambda entry: entry.details.get("marker") == f"mine {route}")
        size = {"group": f"theirs {route}", "size": 2}
        theirs = await other.start_call("barrier", {**size, "nonce": "theirs"}, id="same")
        await mine.cancel()
        await log.wait_for_event("cancelled")
        await other.call("barrier", {**size, "nonce": "free"})
        assert (await theirs.answer()).words == "theirs"
        assert len(cancelled(log)) == 1


@routes(MAIN, MODERN)
async def test_a_client_that_leaves_cancels_what_it_asked_for(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        await held(client, log, f"left {route}")
    await log.wait_for(lambda entry: entry.event in ("cancelled", "end of input"))


@routes(CROSSED)
async def test_a_reply_after_the_cancellation_is_dropped(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        exchange = await held(client, log, f"late {route}", late=True)
        await exchange.cancel()
        await log.wait_for_event("cancelled")
        assert (await client.call("nonce", {"nonce": "after"}, id="next")).words == "after"
        assert not exchange.outcome.done() or exchange.outcome.exception()


@routes(HTTP_FRONT, HANDSHAKE)
async def test_a_call_goes_on_when_its_stream_is_closed(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        exchange = await held(client, log, f"goes on {route}")
        await client.link.abandon(exchange.stream)
        assert (await client.call("nonce", {"nonce": "after"})).words == "after"
        assert cancelled(log) == []
        await exchange.cancel()
        await log.wait_for_event("cancelled")
