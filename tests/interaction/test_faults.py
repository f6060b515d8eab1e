import contextlib

import pytest

from tests.interaction.clients.message import Message
from tests.interaction.clients.raw import HANDSHAKE, MODERN, Exchange, RawClient
from tests.interaction.log import ServerLog
from tests.interaction.route import CORNERS, CROSSED, HTTP_BACK, OLD, STDIO_BACK, Route, routes
from tests.interaction.stage import Stage
from tests.waiting import WAIT_SECONDS

DEATHS = {
    "exit code 1": {"code": 1},
    "exit code 0": {"code": 0},
    "killed": {"signal": "SIGKILL"},
    "partial line": {"partial": True},
}
HTTP_FAULTS = (
    "reset",
    "truncated events",
    "truncated json",
    "no answer",
    "wrong type",
    "not json",
    "redirect",
    "401",
    "403",
    "429",
    "500",
    "502",
)
UNSUPPORTED = -32022
SOON = WAIT_SECONDS
"""Within how many seconds a fault must have become an error; generous, since machines that run tests are busy."""


def words(reply: Message) -> str:
    """What an error says."""
    message: str = reply.decoded("error")["message"]
    return message


async def _works(client: RawClient, nonce: str = "again") -> None:
    assert (await client.call("nonce", {"nonce": nonce})).words == nonce


@routes(STDIO_BACK + CROSSED[1:2])
async def test_a_crash_is_an_error_that_names_the_upstream_and_the_next_call_works(stage: Stage, route: Route):
    log = stage.log()
    upstream = stage.config("one", {"frail": stage.entry("stdio")})
    async with stage.client(route, upstream=upstream) as client:
        await _works(client, "before")
        for death, arguments in DEATHS.items():
            log.mark()
            reply = await client.call("die", arguments, within=SOON)
            assert "frail" in words(reply), death
            await _works(client, death)
            assert (await client.request("tools/list")).decoded()["tools"]
            assert len(log.entries("dying")) == 1, death


@routes(STDIO_BACK)
async def test_all_calls_in_flight_end_with_a_crash(stage: Stage, route: Route):
    log = stage.log()
    upstream = stage.config("one", {"frail": stage.entry("stdio")})
    async with stage.client(route, upstream=upstream) as client:
        held = [await client.start_call("slow", {"hold": True, "marker": str(number)}) for number in range(5)]
        await log.wait_for(lambda _: len(log.entries("holding")) == 5)
        await client.start_call("die")
        for exchange in held:
            assert "frail" in words(await exchange.answer(SOON))
        await _works(client)


@routes(STDIO_BACK)
async def test_an_upstream_that_ends_at_once_is_an_error(stage: Stage, route: Route):
    upstream = stage.config("one", {"absent": stage.entry("stdio", "--exit-at-start", "3")})
    async with stage.client(route, upstream=upstream, greet=False) as client:
        reply = await client.greet()
        assert "absent" in words(reply)


@pytest.mark.parametrize("where", ["initialize,server/discover", "tools/list"])
@routes(CORNERS)
async def test_an_upstream_that_hangs_at_the_start_is_an_error(stage: Stage, route: Route, where: str):
    upstream = stage.config("one", {"sleeper": stage.entry(route.back, "--hang-at", where)})
    env = {"RIGLM_TIMEOUTS__INITIALIZE": "1", "RIGLM_TIMEOUTS__LIST": "1"}
    async with stage.client(route, upstream=upstream, greet=False, env=env) as client:
        reply = await client.greet()
        if "result" in reply.parts:
            reply = await client.request("tools/list", within=SOON)
        elif reply.code == UNSUPPORTED:
            client.era = HANDSHAKE
            reply = await client.greet()
        assert "sleeper" in words(reply)


@routes(CROSSED)
async def test_a_call_past_its_deadline_is_an_error_and_cancelled_upstream(stage: Stage, route: Route):
    log = stage.log()
    upstream = stage.config("one", {"sleeper": stage.entry(route.back)})
    async with stage.client(route, upstream=upstream, env={"RIGLM_TIMEOUTS__CALL": "1"}) as client:
        await _works(client, "before")
        reply = await client.call("hang", within=SOON)
        assert "sleeper" in words(reply)
        await log.wait_for_event("cancelled")
        await _works(client)


@pytest.mark.parametrize("status", [404, 503])
@routes(HTTP_BACK, HANDSHAKE)
async def test_an_http_upstream_that_restarted_is_not_noticed(stage: Stage, route: Route, status: int):
    await _restarts_unseen(stage, route, "--unknown-session", str(status))


@routes(HTTP_BACK, MODERN)
async def test_a_modern_http_upstream_that_restarted_is_not_noticed(stage: Stage, route: Route):
    await _restarts_unseen(stage, route)


async def _restarts_unseen(stage: Stage, route: Route, *flags: str) -> None:
    log = stage.log(*flags)
    async with stage.client(route, *flags) as client:
        await _works(client, "before")
        stage.restart(*stage.network_server(*flags))
        log.mark()
        await _works(client, "after the restart")
        assert len(log.received("tools/call")) <= 2
        log.mark()
        await _works(client, "calm")
        assert log.requests() == ["tools/call"]


@routes(HTTP_BACK, HANDSHAKE)
async def test_many_calls_at_once_after_a_restart_open_one_session(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route) as client:
        await _works(client, "before")
        stage.restart(*stage.network_server())
        log.mark()
        exchanges = [await client.start_call("nonce", {"nonce": str(number)}) for number in range(10)]
        assert [(await exchange.answer()).words for exchange in exchanges] == [str(number) for number in range(10)]
        assert len(log.received("initialize")) == 1


@routes(OLD[1:])
async def test_an_sse_upstream_that_restarted_is_not_noticed_for_long(stage: Stage, route: Route):
    async with stage.client(route) as client:
        await _works(client, "before")
        stage.restart(*stage.network_server())
        with contextlib.suppress(AssertionError):
            await _works(client, "perhaps an error")
        await _works(client)


@routes(HTTP_BACK)
async def test_an_upstream_that_is_down_is_an_error_and_works_when_it_is_back(stage: Stage, route: Route):
    log = stage.log()
    upstream = stage.config("one", {"distant": stage.entry("http")})
    command = stage.network_server()
    async with stage.client(route, upstream=upstream) as client:
        await _works(client, "before")
        held = await client.start_call("slow", {"hold": True, "marker": "held"})
        await log.wait_for_event("holding")
        port = stage.kill(*command)
        assert "distant" in words(await held.answer(SOON))
        assert "distant" in words(await client.call("nonce", {"nonce": "down"}, within=SOON))
        stage.listening(*command, port=port)
        await _works(client, "back")
    assert [entry for entry in log.received("tools/call") if b'"held"' in entry.raw][1:] == []


@routes(HTTP_BACK)
async def test_a_broken_http_answer_is_an_error_and_never_a_second_call(stage: Stage, route: Route):
    log = stage.log()
    upstream = stage.config("one", {"broken": stage.entry("http")})
    async with stage.client(route, upstream=upstream) as client:
        for kind in HTTP_FAULTS:
            log.mark()
            reply = await client.call("http_fault", {"kind": kind}, within=SOON)
            assert "broken" in words(reply), kind
            assert len(log.received("tools/call")) == 1, kind
            await _works(client, kind)


@routes(HTTP_BACK)
async def test_a_broken_answer_leaves_the_calls_beside_it(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route) as client:
        beside = await _beside(client, log)
        for kind in ("reset", "truncated events"):
            await client.call("http_fault", {"kind": kind}, within=SOON)
        await client.call("barrier", {"group": "beside", "size": 2, "nonce": "second"})
        assert (await beside.answer()).words == "first"


async def _beside(client: RawClient, log: ServerLog) -> Exchange:
    exchange = await client.start_call("barrier", {"group": "beside", "size": 2, "nonce": "first"})
    await log.wait_for(lambda entry: entry.event == "received" and b'"beside"' in entry.raw)
    return exchange
