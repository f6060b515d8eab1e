"""Two riglm processes behind the load balancers of the documentation."""

import asyncio
import contextlib
import hashlib
import itertools
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Self

import psycopg
import pytest

from riglm.domain.hashing import KeyedHasher
from tests.interaction import text
from tests.interaction.balancers import LOAD_BALANCERS, run_load_balancer
from tests.interaction.clients.old_sse import SseLink
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.log import ServerLog
from tests.interaction.stage import Stage
from tests.interaction.test_several_processes import count
from tests.started import free_port
from tests.stores import valkey
from tests.waiting import wait_until, wait_until_async

NAMES = "ab"
PRIVACY_KEY = "s" * 40
HASHER = KeyedHasher(hashlib.sha256(PRIVACY_KEY.encode()).digest())
CLIENTS = 8
CALLS_PER_SECOND = 200
UNRECORDED_SECONDS = 1.0
"""Calls answered in the last 0.1 s before a SIGKILL may be unrecorded (docs/operating.md); more on a busy machine."""


def is_healthy(control_port: int) -> bool:
    """Return whether a process passes the health check."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{control_port}/health") as response:
        return int(response.status) == 200
    return False


class BalancedProcesses:
    """Two riglm processes with one store and one state, and a load balancer in front of them."""

    def __init__(self, stage: Stage, back: list[str], postgres_url: str) -> None:
        self._stage = stage
        self._back = back
        self._prefix = valkey.own_prefix()
        self._shared = {
            "RIGLM_STORAGE__URL": postgres_url,
            "RIGLM_STATE__URL": valkey.shared_url(),
            "RIGLM_STATE__PREFIX": self._prefix,
            "RIGLM_STATE__DEADLINE": "2",
            "RIGLM_PRIVACY__KEY": PRIVACY_KEY,
            "RIGLM_CONTROL__ENABLED": "true",
        }
        self._ports: dict[int, int] = {}
        self._origins: dict[str, str] = {}
        for number, name in enumerate(NAMES, 1):
            self._start(name, 8710 + number, 8720 + number)

    def _start(self, name: str, page_port: int, page_control_port: int) -> None:
        self._ports[page_control_port] = free_port()
        origin = self._stage.serve(*self._back, env=self._env(name, self._ports[page_control_port]))
        wait_until(lambda: is_healthy(self._ports[page_control_port]), f"{name} is healthy")
        self._ports[page_port] = int(origin.rpartition(":")[2])
        self._origins[name] = origin

    def _env(self, name: str, control_port: int) -> dict[str, str]:
        return {
            **self._shared,
            "RIGLM_DATA_DIR": str(self._stage.folder / f"{self._prefix}-{name}"),
            "RIGLM_DOWNSTREAM__PROCESS": name,
            "RIGLM_CONTROL__PORT": str(control_port),
        }

    @contextmanager
    def balance(self, program: str) -> Iterator[str]:
        """Run a load balancer in front of the processes; its origin."""
        with run_load_balancer(program, self._ports, self._stage.env) as origin:
            yield origin

    def kill(self, name: str) -> None:
        """End a process at once."""
        process = self._stage.served_by(self._origins[name])
        process.notify(signal.SIGKILL)
        process.wait()

    def restart(self, name: str) -> None:
        """Start a riglm with the data directory of a process that was killed."""
        self._stage.serve(*self._back, env=self._env(name, free_port()))


@asynccontextmanager
async def open_clients(origin: str, era: str) -> AsyncIterator[list[RawClient]]:
    """Clients that have initialized their sessions."""
    async with AsyncExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            headers = {"x-riglm-session": f"session {number}"} if era == MODERN else {}
            link = StreamableLink(origin + "/mcp", headers, listen=False)
            clients.append(await stack.enter_async_context(RawClient(link, era)))
            await clients[-1].greet()
        yield clients


def get_process_name(client: RawClient) -> str:
    """Return the name in a client's session id."""
    assert isinstance(client.link, StreamableLink)
    assert client.link.session_id
    return client.link.session_id.partition(".")[0]


async def count_calls(client: RawClient) -> tuple[int, int]:
    """Return the number of calls that the server has counted in the client's session, and the server's process id."""
    answer = await client.call("counter")
    return count(answer), int(answer.decoded()["structuredContent"]["pid"])


@pytest.mark.parametrize("program", LOAD_BALANCERS)
async def test_load_balancer_keeps_handshake_clients_at_their_process_and_distributes_the_others(
    stage: Stage, postgres_url: str, program: str
) -> None:
    riglms = BalancedProcesses(stage, stage.back("stdio"), postgres_url)
    with riglms.balance(program) as origin:
        async with open_clients(origin, HANDSHAKE) as clients:
            assert {get_process_name(client) for client in clients} == set(NAMES)
            rounds = [await asyncio.gather(*map(count_calls, clients)) for _ in range(10)]
            for calls in zip(*rounds, strict=True):
                assert [number for number, _ in calls] == list(range(1, 11))
                assert len({pid for _, pid in calls}) == 1
        async with RawClient(StreamableLink(origin + "/mcp", {"x-riglm-session": "one"}), MODERN) as modern:
            pids = {(await count_calls(modern))[1] for _ in range(10)}
            assert len(pids) == len(NAMES), "each process has a server of its own"
        async with AsyncExitStack() as stack:
            links = [SseLink(origin + "/sse") for _ in range(2)]
            older = [await stack.enter_async_context(RawClient(link, HANDSHAKE)) for link in links]
            for client in older:
                await client.greet()
            assert {link.endpoint.partition("session_id=")[2].partition(".")[0] for link in links} == set(NAMES)
            for number in range(1, 5):
                assert [count(await client.call("counter")) for client in older] == [number] * len(older)


@dataclass
class Load:
    """Calls of many clients, each with arguments of its own."""

    clients: list[RawClient]
    answered: dict[str, tuple[float, float, RawClient]] = field(default_factory=dict)
    """Arguments of the answered calls, with the times of the call and of its answer, and the client."""
    failed: list[tuple[float, Exception]] = field(default_factory=list)
    """Errors, with the time at which their calls were sent."""
    answers: Counter[int] = field(default_factory=Counter)
    """Number of answered calls of each client, by its place."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _is_ending: bool = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._call(place)) for place in range(len(self.clients))]
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._is_ending = True
        await asyncio.gather(*self._tasks)

    async def _call(self, place: int) -> None:
        client = self.clients[place]
        while not self._is_ending:
            arguments, sent_at = str(next(self._numbers)), time.monotonic()
            try:
                answer = await client.call("nonce", {"nonce": arguments})
            except ConnectionError as error:
                self.failed.append((sent_at, error))
            else:
                assert answer.words == arguments
                self.answered[arguments] = (sent_at, time.monotonic(), client)
                self.answers[place] += 1
            await asyncio.sleep(len(self.clients) / CALLS_PER_SECOND)


async def list_recorded(postgres_url: str) -> Counter[str]:
    """Return how often each call of the load is recorded, by the hash of its arguments."""
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        found = await connection.execute("SELECT arguments_hash FROM invocation WHERE tool = 'nonce'")
        return Counter(arguments_hash for (arguments_hash,) in await found.fetchall())


def get_hash(arguments: str) -> str:
    """Return the hash under which riglm records a call of the load."""
    return HASHER.arguments(b'{"nonce":"%b"}' % arguments.encode())


def list_received(log: ServerLog) -> Counter[str]:
    """Return how often each call of the load, and each held call, reached the server."""
    params = [text.value(entry.parts["params"]) for entry in log.received("tools/call")]
    return Counter(f"{each['name']} {each['arguments']['nonce']}" for each in params if each["name"] != "counter")


def hold(number: int) -> dict[str, object]:
    """Arguments with which the server answers a call when one more than the clients have called."""
    return {"group": "held", "size": 2 * CLIENTS + 1, "nonce": str(number)}


@pytest.mark.parametrize("program", LOAD_BALANCERS)
async def test_clients_of_a_killed_process_continue_at_the_other_and_lose_no_record(
    stage: Stage, postgres_url: str, program: str
) -> None:
    log = stage.log()
    riglms = BalancedProcesses(stage, stage.back("http"), postgres_url)

    async def has_many_records() -> bool:
        return len(await list_recorded(postgres_url)) >= CALLS_PER_SECOND

    with riglms.balance(program) as origin:
        async with open_clients(origin, HANDSHAKE) as handshake, open_clients(origin, MODERN) as modern:
            for client in handshake:
                assert [(await count_calls(client))[0] for _ in range(3)] == [1, 2, 3]
            clients = [*handshake, *modern]
            held = [await client.start_call("barrier", hold(number)) for number, client in enumerate(clients)]
            await wait_until_async(lambda: list_received(log).total() == len(clients), "the server holds the calls")
            async with Load(clients) as load:
                await wait_until_async(has_many_records)
                await asyncio.to_thread(riglms.kill, "a")
                killed_at, before = time.monotonic(), load.answers.copy()
                await wait_until_async(
                    lambda: all(load.answers[place] >= before[place] + 10 for place in range(len(load.clients))),
                    "each client continues",
                )
            for client, exchange in zip(handshake, held[:CLIENTS], strict=True):
                is_reopened = get_process_name(client) == "a"
                assert exchange.outcome.done() == is_reopened
                assert (await count_calls(client))[0] == (1 if is_reopened else 4)
            failed_calls = [exchange for exchange in held if exchange.outcome.done()]
            assert {exchange in failed_calls for exchange in held[CLIENTS:]} == {True, False}, (
                "calls were in flight at both"
            )
            await modern[0].call("barrier", hold(len(clients)))  # the last of its group
            for exchange in held:
                with pytest.raises(ConnectionError) if exchange in failed_calls else nullcontext():
                    await exchange.answer()

    assert [each for each, times in list_received(log).items() if times > 1] == [], "sent twice"
    assert len(load.failed) <= len(load.clients), load.failed
    late = [error for sent_at, error in load.failed if sent_at > killed_at]
    assert len(late) <= len(load.clients) // 4, f"not in flight when the process died: {late}"
    may_lack = {
        get_hash(arguments)
        for arguments, (sent_at, answered_at, client) in load.answered.items()
        if sent_at <= killed_at < answered_at + UNRECORDED_SECONDS
        and not (client.era == HANDSHAKE and get_process_name(client) == "b")
    }
    required = {get_hash(arguments) for arguments in load.answered} - may_lack
    riglms.restart("a")  # it stores what is in the spool

    async def has_all_records() -> bool:
        return required <= (await list_recorded(postgres_url)).keys()

    await wait_until_async(has_all_records)
    stage.close()  # processes store all that they have before they end
    recorded = await list_recorded(postgres_url)
    assert [each for each, times in recorded.items() if times > 1] == [], "recorded twice"
    assert required <= recorded.keys()
