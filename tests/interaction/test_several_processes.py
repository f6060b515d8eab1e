"""Several riglm processes with one state: modern sessions are shared, and others reopened at another process."""

import asyncio
import hashlib
import itertools
import json
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.session_sharing.signing import StateSigner
from riglm.domain.hashing import KeyedHasher
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.stage import Stage
from tests.records import calls_by_tool
from tests.stores import valkey
from tests.waiting import wait_until_async

FILTERED = {
    "RIGLM_FILTERING__MODE": "enforce",
    "RIGLM_FILTERING__COVERAGE": "0.9",
    "RIGLM_FILTERING__MIN_TOOLS": "3",
    "RIGLM_FILTERING__MAX_TOOLS": "3",
    "RIGLM_FILTERING__COLD_START_LIMIT": "3",
    "RIGLM_FILTERING__SURFACE": "dynamic",
    "RIGLM_FILTERING__META_TOOLS__INDEX_STATUS": "true",
}
"""Lists hold three tools, and follow the context."""


class AlternatingLink(StreamableLink):
    """Sends every request to another process than the one before; `pin` keeps it at one."""

    def __init__(self, origins: list[str], headers: Mapping[str, str] | None = None, *, listen: bool = True) -> None:
        self._next = itertools.cycle(origins)
        super().__init__("", headers, listen=listen)

    @property
    def url(self) -> str:
        return next(self._next) + "/mcp"

    @url.setter
    def url(self, url: str) -> None:
        pass

    def pin(self, *origins: str) -> None:
        self._next = itertools.cycle(origins)


class Processes:
    """Several riglms in front of one server, with one state."""

    def __init__(self, stage: Stage, back: list[str], env: Mapping[str, str], state_url: str) -> None:
        self.stage = stage
        self.prefix = valkey.own_prefix()
        shared = {
            "RIGLM_STATE__URL": state_url,
            "RIGLM_STATE__PREFIX": self.prefix,
            "RIGLM_STATE__DEADLINE": "2",
            "RIGLM_PRIVACY__KEY": "s" * 40,
            **env,
        }
        self.env = shared
        self.origins = [
            stage.serve(*back, env={**shared, "RIGLM_DATA_DIR": str(stage.folder / f"{self.prefix}-{number}")})
            for number in range(2)
        ]

    async def command(self, *words: str) -> None:
        """Run a command of riglm with the settings of these processes."""
        child = await asyncio.create_subprocess_exec(
            *self.stage.riglm(*words),
            env=self.stage.serving_env({**self.env, "RIGLM_DATA_DIR": str(self.stage.folder / f"{self.prefix}-0")}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await child.communicate()
        assert child.returncode == 0, said.decode()

    async def shared(self) -> bytes:
        """All that is kept of sessions for all processes."""
        key = hashlib.sha256(self.env["RIGLM_PRIVACY__KEY"].encode()).digest()
        sealer = StateSigner(KeyedHasher(key).derived_key("shared state"))
        async with Redis.from_url(self.env["RIGLM_STATE__URL"]) as server:
            keys = [key async for key in server.scan_iter(f"{self.prefix}:session:*", 1000)]
            names = [key.decode().partition(":")[2] for key in keys]
            values = [await server.get(key) for key in keys]
        return b"\n".join(sealer.opened(name, value) or b"" for name, value in zip(names, values, strict=True))

    @asynccontextmanager
    async def client(
        self, era: str, *, listen: bool = False, headers: Mapping[str, str] | None = None, greet: bool = True
    ) -> AsyncIterator[RawClient]:
        """A client whose requests alternate between the processes."""
        link = AlternatingLink(self.origins, headers, listen=listen and era == HANDSHAKE)
        async with RawClient(link, era) as client:
            if greet:
                await client.greet()
            yield client


def processes(stage: Stage, kind: str, *flags: str, env: Mapping[str, str] | None = None) -> Processes:
    return Processes(stage, stage.back(kind, *flags), env or {}, valkey.shared_url())


def count(answer: Any) -> int:
    return int(answer.decoded()["structuredContent"]["count"])


def listed(answer: Any) -> list[str]:
    return [tool["name"] for tool in answer.decoded()["tools"]]


@pytest.fixture(scope="module")
def actors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage for the tests that end no process."""
    made = Stage(tmp_path_factory.mktemp("processes"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def web(actors: Stage) -> Processes:
    """Processes in front of a server over HTTP."""
    return processes(actors, "http")


@pytest.fixture(scope="module")
def pipes(actors: Stage) -> Processes:
    """Processes in front of a server on stdio."""
    return processes(actors, "stdio")


@pytest.fixture(scope="module")
def filtered(actors: Stage) -> Processes:
    """Processes that filter, in front of many tools."""
    return processes(actors, "http", "--many-tools", "40", env=FILTERED)


@pytest.mark.parametrize("kind", ["web", "pipes"])
async def test_each_process_opens_a_session_of_its_own_at_the_server(kind: str, request: pytest.FixtureRequest) -> None:
    riglms: Processes = request.getfixturevalue(kind)
    async with riglms.client(HANDSHAKE) as client:
        await client.request("logging/setLevel", {"level": "debug"})
        assert [count(await client.call("counter")) for _ in range(6)] == [1, 1, 2, 2, 3, 3]


async def test_many_requests_that_arrive_at_once_elsewhere_reopen_a_session_once(web: Processes) -> None:
    async with web.client(HANDSHAKE) as client:
        client.link.pin(web.origins[0])  # type: ignore[attr-defined]
        assert count(await client.call("counter")) == 1
        client.link.pin(web.origins[1])  # type: ignore[attr-defined]
        asked = [await client.start_call("counter") for _ in range(20)]
        assert sorted([count(await one.answer()) for one in asked]) == list(range(1, 21))


async def test_a_session_with_several_servers_is_reopened_at_each_of_them(actors: Stage) -> None:
    servers = {"web": actors.entry("http", "--name", "web"), "own": actors.entry("stdio", "--name", "own")}
    riglms = Processes(actors, actors.config("both", servers), {}, valkey.shared_url())
    async with riglms.client(HANDSHAKE) as client:
        assert {"web__counter", "own__counter"} <= set(listed(await client.request("tools/list")))
        for name in ("web__counter", "own__counter"):
            assert [count(await client.call(name)) for _ in range(4)] == [1, 1, 2, 2]


async def test_only_its_own_principal_goes_on_with_a_session(stage: Stage) -> None:
    tokens = [{"authorization": f"Bearer {name * 20}"} for name in "ab"]
    state = {"RIGLM_STATE__URL": valkey.shared_url(), "RIGLM_STATE__PREFIX": valkey.own_prefix()}
    shared = {**state, "RIGLM_PRIVACY__KEY": "s" * 40, "RIGLM_STATE__DEADLINE": "2"}
    back = stage.back("http")
    own = stage.serve(*back, env={**shared, "RIGLM_DOWNSTREAM__TOKEN": "a" * 20})
    anonymous = stage.serve(*back, env={**shared, "RIGLM_DATA_DIR": str(stage.folder / "other")})
    async with RawClient(StreamableLink(own + "/mcp", tokens[0], listen=False), HANDSHAKE) as client:
        await client.greet()
        stolen = StreamableLink(anonymous + "/mcp", listen=False)
        stolen.session_id, stolen._version = client.link.session_id, "2025-11-25"
        async with RawClient(stolen, HANDSHAKE) as thief:
            answer = await thief.request("tools/list")
            assert answer.code == -32600
            assert "Session not found" in answer.raw.decode()
            stolen.drop()
        assert count(await client.call("counter")) == 1


async def test_a_session_that_its_client_ended_is_not_reopened_elsewhere(web: Processes) -> None:
    async with web.client(HANDSHAKE, greet=False) as client:
        client.link.pin(web.origins[0])  # type: ignore[attr-defined]
        await client.greet()
        await client.call("counter")
        session_id = client.link.session_id
    for origin in web.origins:
        late = StreamableLink(origin + "/mcp", listen=False)
        late.session_id, late._version = session_id, "2025-11-25"
        async with RawClient(late, HANDSHAKE) as client:
            assert "Session not found" in (await client.request("tools/list")).raw.decode()
            late.drop()


async def test_lists_agree_after_a_context_was_said_at_one_process(filtered: Processes) -> None:
    async with filtered.client(MODERN, headers={"x-riglm-session": "agreed"}) as client:
        first, second = [await client.request("tools/list") for _ in range(2)]
        assert first.result == second.result
        await client.call("set_context", {"context": "count words in a text"})
        await client.call("counter")
        lists = [(await client.request("tools/list")).result for _ in range(4)]
        assert len(set(lists)) == 1


async def test_a_session_of_the_modern_era_is_one_wherever_its_requests_come_in(filtered: Processes) -> None:
    async with filtered.client(MODERN, headers={"x-riglm-session": "modern"}) as client:
        for number in range(6):
            answer = await client.call("nonce", {"nonce": str(number)})
            assert answer.decoded()["content"][0]["text"] == str(number)
        lists = [(await client.request("tools/list")).result for _ in range(4)]
        assert len(set(lists)) == 1


async def test_calls_of_one_session_that_two_processes_serve_at_once_are_counted_together(
    stage: Stage, postgres_url: str
) -> None:
    riglms = processes(stage, "http", env={**FILTERED, "RIGLM_STORAGE__URL": postgres_url})
    async with riglms.client(MODERN, headers={"x-riglm-session": "at once"}) as client:
        for _ in riglms.origins:
            await client.request("tools/list")
        asked = [await client.start_call("nonce", {"nonce": str(number)}) for number in range(60)]
        assert [(await one.answer()).words for one in asked] == [str(number) for number in range(60)]
    with SqlAnalytics(postgres_url) as store:
        await wait_until_async(lambda: calls_by_tool(store).total() >= 60)
        [session] = [each.session for each in store.list_sessions() if each.invocations]
        numbers = [call.sequence_number for call in store.list_invocations(session.id)]
    assert sorted(numbers) == list(range(1, 61))


async def test_a_changed_list_reaches_a_listener_of_the_modern_era_at_another_process(stage: Stage) -> None:
    riglms = processes(
        stage, "http", "--many-tools", "40", env=FILTERED
    )  # where nothing is learned, a context changes it
    one, other = riglms.origins
    async with riglms.client(MODERN, headers={"x-riglm-session": "listening"}) as client:
        link = client.link
        assert isinstance(link, AlternatingLink)
        link.pin(one)
        await client.request("tools/list")
        await client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="mine")
        await client.wait_for("notifications/subscriptions/acknowledged")
        link.pin(other)
        shown = listed(await client.request("tools/list"))
        hidden = next(tool for tool in ("verbatim", "slow", "barrier") if tool not in shown)
        await client.call("set_context", {"context": f"{hidden} {hidden} {hidden}"})
        await client.wait_for("notifications/tools/list_changed")


async def test_sessions_of_a_killed_process_go_on_at_another(stage: Stage) -> None:
    riglms = processes(stage, "http")
    one, other = riglms.origins
    async with riglms.client(HANDSHAKE) as client, riglms.client(MODERN, headers={"x-riglm-session": "one"}) as modern:
        link = client.link
        assert isinstance(link, AlternatingLink)
        link.pin(one)
        assert count(await client.call("counter")) == 1
        stage.served_by(one).notify(signal.SIGKILL)
        stage.served_by(one).wait()
        link.pin(other)
        modern.link.pin(other)  # type: ignore[attr-defined]
        assert [count(await client.call("counter")) for _ in range(3)] == [1, 2, 3]
        assert (await modern.call("nonce", {"nonce": "x"})).decoded()["content"][0]["text"] == "x"


async def test_what_one_process_learned_the_others_know_soon(stage: Stage, postgres_url: str) -> None:
    env = {**FILTERED, "RIGLM_STORAGE__URL": postgres_url}
    riglms = processes(stage, "http", "--many-tools", "40", env=env)
    one, other = riglms.origins
    async with riglms.client(HANDSHAKE) as client, riglms.client(HANDSHAKE) as newcomer:
        client.link.pin(one)  # type: ignore[attr-defined]
        newcomer.link.pin(other)  # type: ignore[attr-defined]
        await newcomer.request("tools/list")
        await newcomer.call("set_context", {"context": "nothing that was ever done"})
        assert await pairs_known(newcomer) == 0
        await client.request("tools/list")
        await client.call("set_context", {"context": "see how often this was called"})
        await client.call("counter")
        await wait_until_async(lambda: pairs_known(newcomer), "a client is not notified of learned pairs")


async def test_a_session_that_is_forgotten_while_it_goes_on_is_remembered_by_no_process(
    stage: Stage, postgres_url: str
) -> None:
    riglms = processes(stage, "http", env={**FILTERED, "RIGLM_STORAGE__URL": postgres_url})
    async with riglms.client(MODERN, headers={"x-riglm-session": "forgotten"}) as client:
        for _ in riglms.origins:
            await client.request("tools/list")
            await client.call("set_context", {"context": "find the zebra"})
            await client.call("nonce", {"nonce": "1"})
        assert b"find the zebra" in await riglms.shared()
        with SqlAnalytics(postgres_url) as store:
            await wait_until_async(store.list_sessions)
        await riglms.command("db", "forget", "--client", "raw", "--yes")

        async def is_forgotten() -> bool:
            return b"forgotten_at" in await riglms.shared()

        await wait_until_async(is_forgotten)
        for number in range(4):
            assert (await client.call("nonce", {"nonce": str(number)})).words == str(number)
        assert b"zebra" not in await riglms.shared()


async def pairs_known(client: RawClient) -> int:
    return int(json.loads((await client.call("index_status")).words)["learned_pairs"])


@pytest.mark.parametrize("trouble", ["killed", "frozen"])
async def test_without_shared_state_each_process_goes_on_by_itself(stage: Stage, trouble: str) -> None:
    with valkey.own_server() as server:
        env = {"RIGLM_STATE__DEADLINE": "0.3"}
        riglms = Processes(stage, stage.back("http"), env, server.url)
        one, _ = riglms.origins
        async with riglms.client(HANDSHAKE) as client:
            link = client.link
            assert isinstance(link, AlternatingLink)
            assert [count(await client.call("counter")) for _ in range(2)] == [1, 1]
            if trouble == "killed":
                server.kill()
            else:
                server.freeze()
            assert [count(await client.call("counter")) for _ in range(6)] == [2, 2, 3, 3, 4, 4]
            link.pin(one)
            async with RawClient(StreamableLink(one + "/mcp", listen=False), HANDSHAKE) as newcomer:
                await newcomer.greet()
                assert count(await newcomer.call("counter")) == 1
