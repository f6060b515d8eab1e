import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from riglm.adapters.mcp.upstream import stdio_upstream as stdio
from riglm.adapters.mcp.upstream.process import ProcessReaper
from riglm.adapters.mcp.upstream.stdio_upstream import StdioUpstream
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import UpstreamLink
from tests.unit.adapters.upstream.actors import QUICK, Ears, ask, notification, within
from tests.waiting import wait_until_async

SCRIPT = str(Path(__file__).with_name("child.py"))
LIMIT = 65_536


@pytest.fixture
async def upstream():
    """Makes upstreams that are closed in the end, and must leave nothing."""
    made: list[StdioUpstream] = []
    reaper = ProcessReaper()

    def make(*modes: str, **spec: object) -> StdioUpstream:
        command = (sys.executable, "-I", "-S", SCRIPT, *modes)
        given = {"name": "server", "kind": "stdio", "command": command, **spec}
        made.append(
            StdioUpstream(UpstreamSpec(**given), reaper=reaper, timeout_seconds=QUICK, limit=LIMIT)  # type: ignore[arg-type]
        )
        return made[-1]

    yield make
    for one in made:
        await within(one.close())
    reaper.close()
    assert [child for child in psutil.Process().children() if SCRIPT in child.cmdline()] == []
    assert len(asyncio.all_tasks()) == 1


async def pid(link: UpstreamLink, identifier: object = 1) -> int:
    found: int = (await ask(link, identifier, "hello").result())["pid"]
    return found


async def greet(link: UpstreamLink) -> None:
    await ask(link, "hello", "initialize").result()
    link.send(notification("notifications/initialized"))


async def refused_modern(one: StdioUpstream) -> int:
    """Find out that the server knows the handshake alone; the id of its process."""
    answer = ask(one.stateless(Ears()), 1, "server/discover")
    await answer.error()
    one.learned(ProtocolEra.MODERN, supported=False)
    return next(child.pid for child in psutil.Process().children() if SCRIPT in child.cmdline())


async def test_a_process_that_was_started_early_and_ended_is_replaced(upstream):
    one = upstream()
    await one.start_early()
    [early] = [child for child in psutil.Process().children() if SCRIPT in child.cmdline()]
    early.kill()
    await wait_until_async(lambda: one._early[0].is_missing)
    assert await pid(one.connect(Ears())) != early.pid


async def test_a_client_too_many_is_told_so_until_another_leaves(upstream):
    one = upstream(sharing="session", max_processes=2)
    links = [one.connect(Ears()) for _ in range(3)]
    for link in links[:2]:
        await pid(link)
    words = await ask(links[2], 1, "initialize").words()
    assert "'server' has 2 processes running, as many as `max_processes` allows" in words
    await links[0].close()
    await pid(links[2])


async def test_a_command_that_cannot_be_run_takes_no_room(upstream):
    one = upstream(sharing="session", max_processes=1, command=("/no/such/program",))
    for _ in range(3):
        assert "cannot run '/no/such/program'" in await ask(one.connect(Ears()), 1, "initialize").words()
    assert one._running == {}


async def test_clients_beyond_the_limit_share_one_more_process_which_is_said_once(upstream, caplog):
    one = upstream(max_processes=1)
    own, *guests = [one.connect(Ears()) for _ in range(4)]
    for link in (own, *guests):
        await greet(link)
    pids = [await pid(link) for link in guests]
    assert len({*pids, await pid(own)}) == 2
    assert caplog.text.count("more clients than max_processes") == 1
    for link in guests:
        await link.close()
    await wait_until_async(lambda: not psutil.pid_exists(pids[0]))
    late = one.connect(Ears())
    await greet(late)
    assert await pid(late) not in pids
    await own.close()
    assert await pid(one.connect(Ears())) not in pids


@pytest.mark.parametrize("sharing", ["auto", "shared"])
async def test_clients_of_two_principals_never_share_a_process(upstream, sharing):
    one = upstream(sharing=sharing, max_processes=1)
    links = {name: [one.connect(Ears(), name) for _ in range(3)] for name in ("a", "b")}
    pids = {}
    for name, of_one in links.items():
        for link in of_one:
            await greet(link)
        pids[name] = {await pid(link) for link in of_one}
    assert len(pids["a"]) == len(pids["b"]) == (2 if sharing == "auto" else 1)
    assert pids["a"].isdisjoint(pids["b"])


async def test_a_principal_with_many_processes_takes_no_room_of_another(upstream):
    one = upstream(sharing="session", max_processes=1)
    first, refused, other = one.connect(Ears(), "a"), one.connect(Ears(), "a"), one.connect(Ears(), "b")
    await pid(first)
    assert "as `max_processes` allows" in await ask(refused, 1, "initialize").words()
    await pid(other)


@pytest.mark.parametrize("sharing", ["auto", "session", "shared"])
async def test_the_process_that_refused_the_modern_era_serves_the_next_client(upstream, sharing):
    one = upstream(sharing=sharing, max_processes=1)
    probed = await refused_modern(one)
    link = one.connect(Ears())
    await greet(link)
    assert await pid(link) == probed
    heard = await ask(link, "heard", "tell").result()
    assert heard == ["server/discover", "initialize", "notifications/initialized", "hello", "tell"]
    await ask(link, 2, "kill").words()
    assert await pid(link) != probed


@pytest.mark.parametrize("flaw", ["frail", "mute"])
async def test_a_process_that_the_question_harmed_is_not_used(upstream, monkeypatch, flaw):
    monkeypatch.setattr(stdio, "_PROOF_SECONDS", 0.1)
    one = upstream(flaw)
    probed = await refused_modern(one) if flaw == "mute" else 0
    if flaw == "frail":
        await ask(one.stateless(Ears()), 1, "server/discover").error()
        one.learned(ProtocolEra.MODERN, supported=False)
    link = one.connect(Ears())
    await greet(link)
    assert await pid(link) != probed


async def test_a_process_that_dies_of_the_handshake_after_the_question_is_replaced(upstream):
    one = upstream("fragile")
    probed = await refused_modern(one)
    link = one.connect(Ears())
    await greet(link)
    assert await pid(link) != probed


async def test_a_process_that_understood_the_modern_era_is_not_used_for_the_handshake(upstream):
    one = upstream("modern")
    link = one.stateless(Ears())
    await ask(link, 1, "server/discover").result()
    one.learned(ProtocolEra.MODERN, supported=True)
    modern = await pid(link)
    assert await pid(one.connect(Ears())) != modern
    assert await pid(link) == modern
