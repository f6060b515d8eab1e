"""How connections are kept, shared and let go."""

import asyncio
import random

from riglm.adapters.mcp.wire.http_client import MAX_DIALS, HttpClient, Target
from tests.unit.adapters.wire.peers import OK, Caller, answering, client_for, post, serving, within


class Counted:
    """A script's turnstile: answers only when it is opened, and sees how many wait and how many left."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.arrived = 0
        self.left = 0
        self.all_here = asyncio.Event()
        self.all_gone = asyncio.Event()
        self.opened = asyncio.Event()

    async def script(self, caller: Caller) -> None:
        while await caller.request() is not None:
            self.arrived += 1
            if self.arrived == self.expected:
                self.all_here.set()
            await within(self.opened.wait())
            await caller.say(OK)
        self.left += 1
        if self.left == self.expected:
            self.all_gone.set()


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with serving(answering(OK)) as server, client_for() as client:
        for path in ("/a", "/b", "/a?c"):
            await post(client, Target(f"http://127.0.0.1:{server.port}{path}"))[0].complete()
        assert server.callers == 1


async def test_only_so_many_connections_are_opened_at_the_same_time() -> None:
    async with serving(answering(OK)) as server, client_for() as client:
        answers = [post(client, server.target)[0] for _ in range(3 * MAX_DIALS)]
        (route,) = client._routes.values()
        assert len(route.pool._dials) == MAX_DIALS
        for answer in answers:
            await answer.complete()


async def test_no_more_connections_stay_than_may_be_idle() -> None:
    door = Counted(10)
    async with serving(door.script) as server, client_for(max_idle_per_target=3) as client:
        answers = [post(client, server.target)[0] for _ in range(10)]
        await within(door.all_here.wait())
        door.expected = 7
        door.opened.set()
        for answer in answers:
            await answer.complete()
        await within(door.all_gone.wait())
        assert len([task for task in server.tasks if not task.done()]) == 3


async def test_idle_connections_are_closed_in_time() -> None:
    door = Counted(5)
    door.opened.set()
    async with serving(door.script) as server, client_for(idle_seconds=0.01) as client:
        answers = [post(client, server.target)[0] for _ in range(5)]
        for answer in answers:
            await answer.complete()
        door.expected = server.callers
        await post(client, server.target)[0].complete()
        await server.settle()


async def test_a_connection_idle_for_too_long_is_not_used_again() -> None:
    async with serving(answering(OK)) as server, client_for() as client:
        await post(client, server.target)[0].complete()
        (route,) = client._routes.values()
        route.pool._idle[0].free_since -= 31.0
        await post(client, server.target)[0].complete()
        assert server.callers == 2


async def test_a_connection_closed_by_the_server_while_idle_is_not_used_again() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(OK)

    async with serving(script) as server, client_for() as client:
        for turn in range(3):
            await post(client, server.target)[0].complete()
            await server.settle()
            (route,) = client._routes.values()
            while route.pool._open:
                await within(asyncio.sleep(0))
            assert server.callers == turn + 1
            assert not route.pool._idle


async def test_many_requests_keep_their_own_answers() -> None:
    rng = random.Random(11)

    async def script(caller: Caller) -> None:
        while (request := await caller.request()) is not None:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            body, kind = request.body, rng.randrange(12)
            if kind == 0:
                await caller.say(b"HTTP/1.1 200 OK\r\n\r\n" + body)
                return
            if kind == 1:
                return
            if kind < 4:
                await caller.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body))
                await asyncio.sleep(0)
                await caller.say(body + b"\r\n0\r\n\r\n")
            elif kind < 6:
                await caller.say(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body + OK[: rng.randrange(30)]
                )
            else:
                await caller.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def one_client(number: int) -> tuple[int, int]:
        right = failed = 0
        for turn in range(10):
            nonce = b"%d-%d" % (number, turn)
            answer, exchange = post(client, server.target, nonce)
            if rng.randrange(20) == 0:
                await asyncio.sleep(0)
                exchange.abort()
                if not answer.over.is_set():
                    failed += 1
                    continue
            await within(answer.over.wait())
            if answer.failure is not None:
                failed += 1
            else:
                assert answer.body == nonce
                right += 1
        return right, failed

    async with serving(script) as server, client_for() as client:
        outcomes = await asyncio.gather(*(one_client(number) for number in range(30)))
        assert sum(right + failed for right, failed in outcomes) == 300
        assert sum(right for right, _ in outcomes) > 200


async def test_closing_the_client_fails_what_is_under_way_and_leaves_nothing_open() -> None:
    door = Counted(3)
    async with serving(door.script) as server:
        client = HttpClient(environment={})
        under_way = [post(client, server.target)[0] for _ in range(3)]
        await within(door.all_here.wait())
        waiting, _ = post(client, server.target)
        (route,) = client._routes.values()
        assert len(route.pool._open) == 3
        await within(client.close())
        assert not route.pool._open
        for answer in (*under_way, waiting):
            failure = await answer.broken()
            assert "the HTTP client was closed" in str(failure)
            assert failure.sent is (answer is not waiting)
        door.opened.set()
        await server.settle()
        after, exchange = post(client, server.target)
        assert after.heard == []
        assert "closed" in str(await after.broken())
        silent, exchange = post(client, server.target)
        exchange.pause()
        exchange.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert silent.heard == []
        await client.close()
