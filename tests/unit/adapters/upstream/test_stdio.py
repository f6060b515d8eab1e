import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from riglm.adapters.mcp.upstream import reconnecting_channel
from riglm.adapters.mcp.upstream import stdio_upstream as stdio
from riglm.adapters.mcp.upstream.channel import Receiver
from riglm.adapters.mcp.upstream.process import ProcessReaper
from riglm.adapters.mcp.upstream.stdio_upstream import ProbedChannel, StdioUpstream
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import UpstreamLink
from tests.unit.adapters.upstream.actors import QUICK, Ears, Wire, Wires, ask, notification, settle, within
from tests.waiting import wait_until_async

SCRIPT = str(Path(__file__).with_name("child.py"))
LIMIT = 65_536


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting_channel, "_INITIAL_BACKOFF", 0.001)


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


async def test_nothing_runs_before_the_first_request(upstream):
    before = psutil.Process().children()
    one = upstream()
    link = one.connect(Ears())
    one.stateless(Ears())
    link.send(notification("notifications/initialized"))
    assert psutil.Process().children() == before
    await link.close()


async def test_a_client_too_many_is_told_so_until_another_leaves(upstream):
    one = upstream(sharing="session", max_processes=2)
    links = [one.connect(Ears()) for _ in range(3)]
    for link in links[:2]:
        await pid(link)
    words = await ask(links[2], 1, "initialize").words()
    assert "'server' has 2 processes running, as many as `max_processes` allows" in words
    await links[0].close()
    await pid(links[2])


async def test_a_process_that_crashed_leaves_its_room(upstream):
    one = upstream(sharing="session", max_processes=1)
    link = one.connect(Ears())
    await pid(link)
    for _ in range(3):
        await ask(link, 2, "kill").words()
        await pid(link)


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


async def test_a_guest_that_comes_while_the_shared_process_ends_gets_a_new_one(upstream):
    one = upstream("stubborn", max_processes=1)
    one._timeout_seconds = type(QUICK)(shutdown=0.1)
    _, guest = one.connect(Ears()), one.connect(Ears())
    await greet(guest)
    before = await pid(guest)
    leaving = asyncio.ensure_future(guest.close())
    await asyncio.sleep(0)
    late = one.connect(Ears())
    await greet(late)
    assert await pid(late) != before
    await within(leaving)


async def test_a_shared_process_outlives_its_clients(upstream):
    one = upstream(sharing="shared")
    first, second = one.connect(Ears()), one.connect(Ears())
    for link in (first, second):
        await greet(link)
    pids = {await pid(first), await pid(second)}
    await first.close()
    await second.close()
    third = one.connect(Ears())
    await greet(third)
    assert {*pids, await pid(third)} == pids
    assert len(pids) == 1


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


async def test_only_one_client_gets_the_process_that_refused_the_modern_era(upstream):
    one = upstream()
    probed = await refused_modern(one)
    links = [one.connect(Ears()), one.connect(Ears())]
    for link in links:
        await greet(link)
    pids = [await pid(link) for link in links]
    assert pids[0] == probed != pids[1]


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


class Harmed(Wire):
    """A process that may have ended."""

    def hand_over(self, receiver: Receiver) -> None:
        self.receiver = receiver


@pytest.mark.parametrize("has_ended_first", [True, False])
async def test_a_harmed_process_is_replaced_once(has_ended_first):
    wires = Wires()
    discarded, reasons = [], []
    receiver = SimpleNamespace(ended=reasons.append)
    harmed = Harmed(receiver)
    channel = ProbedChannel(harmed, receiver, wires, discarded.append, 0.0)
    wires.gate.clear()
    if has_ended_first:
        harmed.receiver.ended("exited with code 0")
    channel.write(b'{"method":"initialize"}')
    await wait_until_async(lambda: discarded)
    await settle()
    wires.gate.set()
    replacement = await wires.number(1)
    channel.write(b'{"method":"notifications/initialized"}')
    assert replacement.methods == ["initialize", "notifications/initialized"]
    assert (discarded, wires.all, reasons) == ([harmed], [replacement], [])
    await channel.close()


async def test_a_process_that_cannot_take_the_place_of_a_harmed_one_fails_the_handshake(upstream, monkeypatch):
    async def fail(*_: object, **__: object) -> None:
        raise UpstreamUnavailableError("no processes left")

    monkeypatch.setattr(stdio, "_PROOF_SECONDS", 0.1)
    one = upstream("mute")
    await refused_modern(one)
    monkeypatch.setattr(one, "_start", fail)
    assert await ask(one.connect(Ears()), 1, "initialize").words() == "upstream 'server' no processes left"


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


async def test_what_was_learned_of_the_eras_is_forgotten_when_a_process_crashes_and_not_before(upstream):
    one = upstream()
    assert one.supports(ProtocolEra.MODERN) is None
    one.learned(ProtocolEra.MODERN, supported=True)
    link, other = one.connect(Ears()), one.connect(Ears())
    await pid(link)
    await pid(other)
    await other.close()
    assert one.supports(ProtocolEra.MODERN) is True
    await ask(link, 1, "die", {"code": 1}).words()
    assert one.supports(ProtocolEra.MODERN) is None
