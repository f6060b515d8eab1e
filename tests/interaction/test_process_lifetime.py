import asyncio
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.stdio import StdioLink
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.route import RIGLM, STDIO_BACK, STDIO_FRONT, Route, routes
from tests.interaction.stage import SCRIPTED, Stage
from tests.started import free_port
from tests.waiting import WAIT_SECONDS, wait_until_async

GRACE = 15.0
"""Within how many seconds after riglm's end nothing of it may be left."""

CHILDREN = {"obedient": (), "with a grandchild": ("--stubborn", "--grandchild")}
"""A server that goes when its input ends, and one that ignores that and signals, and has a child of its own."""

QUICK = {"RIGLM_TIMEOUTS__SHUTDOWN": "0.5"}
"""Stubborn children are waited for twice as long as this."""

ENDINGS = ("end of input", "SIGTERM", "SIGINT")


def descriptors(pid: int) -> int:
    """How many a process has, the database's left out: SQLite keeps those of closed connections for its next ones."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += ".db" not in each.readlink().name
    return found


def _riglm_of(client: RawClient) -> int:
    assert isinstance(client.link, StdioLink)
    return client.link.process.pid


@routes(STDIO_FRONT)
async def test_stdout_carries_messages_and_nothing_else(stage: Stage, route: Route):
    async with stage.client(route, env={"RIGLM_LOGGING__LEVEL": "debug"}) as client:
        await client.call("noise", {"kind": "stderr flood"})
        await client.call("die" if route.back == "stdio" else "echo")
        await client.call("echo")
    assert client.strays == []


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_the_debug_log_has_each_session_call_and_request_without_arguments(stage: Stage, era: str):
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted()), {"RIGLM_LOGGING__LEVEL": "debug"})
    async with RawClient(link, era) as client:
        await client.greet()
        await client.call("echo", {"text": "private words"})
        await client.request("resources/list")
    text = link.stderr.read_text("utf-8")
    events = {(each := json.loads(line))["event"]: each for line in text.splitlines() if line.startswith("{")}
    assert events["session opened"]["era"] == ("handshake" if era == HANDSHAKE else "modern")
    call = events["tool call ended"]
    assert (call["tool"], call["outcome"], call["session"]) == ("echo", "success", events["session opened"]["session"])
    assert events["request ended"]["method"] == "resources/list"
    assert "session ended" in events
    assert "private words" not in text


@pytest.mark.parametrize(
    ("era", "how", "kind"),
    [
        (HANDSHAKE, "end of input", "obedient"),
        (MODERN, "SIGHUP", "obedient"),
        *((HANDSHAKE, how, "with a grandchild") for how in ENDINGS),
    ],
)
async def test_riglm_ends_with_code_0_and_leaves_nobody(stage: Stage, era: str, how: str, kind: str):
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted(*CHILDREN[kind])), QUICK)
    log = stage.log(*CHILDREN[kind])
    async with RawClient(link, era) as client:
        await client.greet()
        await client.call("echo")
        exchange = await client.start_call("slow", {"hold": True, "marker": "in flight"})
        await log.wait_for_event("holding")
        if how != "end of input":
            os.kill(_riglm_of(client), getattr(signal, how))
            async with asyncio.timeout(WAIT_SECONDS):
                await link.process.wait()
            assert "riglm is stopping" in (await exchange.answer()).decoded("error")["message"]
    assert link.exit_code == 0, link.stderr.read_text(errors="replace")[-1000:]
    assert stage.leaks(GRACE) == {}


async def test_the_server_starts_before_its_client_says_anything_and_ends_with_it(stage: Stage):
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted()), QUICK)
    client = RawClient(link, HANDSHAKE)
    await link.open(client)
    await stage.log().wait_for_event("started")
    await client.close()
    assert link.exit_code == 0
    assert stage.leaks(GRACE) == {}


@pytest.mark.parametrize(
    ("route", "how"),
    [
        (Route("http", "stdio", RIGLM, HANDSHAKE), signal.SIGTERM),
        (Route("http", "stdio", RIGLM, MODERN), signal.SIGTERM),
        (Route("http", "http", RIGLM, HANDSHAKE), signal.SIGINT),
    ],
    ids=str,
)
async def test_a_serving_riglm_ends_with_code_0_and_leaves_nobody(stage: Stage, route: Route, how: signal.Signals):
    flags = () if route.back == "http" else CHILDREN["with a grandchild"]
    link, log = stage.link(route, *flags, env=QUICK), stage.log(*flags)
    assert isinstance(link, StreamableLink)
    origin = link.url.removesuffix("/mcp")
    async with RawClient(link, route.era) as client:
        await client.greet()
        await client.call("echo")
        exchange = await client.start_call("slow", {"hold": True, "marker": "in flight"})
        await log.wait_for_event("holding")
        assert await asyncio.to_thread(stage.served_by(origin).end, how, within=15) == 0
        assert "riglm is stopping" in (await exchange.answer()).decoded("error")["message"]
        link.drop()
    if route.back == "stdio":
        assert stage.leaks(GRACE) == {}


@pytest.mark.parametrize(
    ("era", "front", "kind"),
    [(HANDSHAKE, "stdio", "with a grandchild"), (HANDSHAKE, "http", "with a grandchild"), (MODERN, "http", "obedient")],
)
async def test_nobody_stays_when_riglm_is_killed(stage: Stage, era: str, front: str, kind: str):
    link = stage.link(Route(front, "stdio", RIGLM, era), *CHILDREN[kind])
    client = RawClient(link, era)
    await link.open(client)
    await client.greet()
    await client.call("echo")
    assert len(stage.leaks(0.0)) >= 2
    if isinstance(link, StdioLink):
        os.kill(link.process.pid, signal.SIGKILL)
        await link.process.wait()
    else:
        assert isinstance(link, StreamableLink)
        riglm = stage.served_by(link.url.removesuffix("/mcp"))
        riglm.notify(signal.SIGKILL)
        riglm.wait()
        link.drop()
    left = await asyncio.to_thread(stage.leaks, GRACE)
    await client.close()
    assert left == {}


def _words(process: psutil.Process) -> list[str]:
    """The command of a process, which may end just now."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize(
    ("route", "farewell"),
    [
        (Route("http", "stdio", RIGLM, HANDSHAKE), "ended"),
        (Route("http", "stdio", RIGLM, HANDSHAKE), "left"),
        (Route("http", "http", RIGLM, HANDSHAKE), "left"),
        (Route("sse", "stdio", RIGLM, HANDSHAKE), "ended"),
    ],
    ids=str,
)
async def test_clients_that_left_leave_no_process_and_no_file(stage: Stage, route: Route, farewell: str):
    env = {"RIGLM_DOWNSTREAM__SESSION_IDLE": "1"}
    async with stage.client(route, env=env) as client:
        await client.call("echo")
    origin = stage.serve(*stage.back(route.back), env=env)
    riglm = psutil.Process(stage.served_by(origin).pid)

    def servers() -> list[int]:
        return [child.pid for child in riglm.children(recursive=True) if str(SCRIPTED) in _words(child)]

    await wait_until_async(lambda: not servers(), "the first client's child is gone")
    await wait_until_async(lambda: any(file.path.endswith("-wal") for file in riglm.open_files()), "the store is open")
    children, files = len(riglm.children(recursive=True)), descriptors(riglm.pid)
    for _ in range(3):
        link = stage.link(route, env=env)
        async with RawClient(link, HANDSHAKE) as client:
            await client.greet()
            await client.call("echo")
            if farewell == "left" and isinstance(link, StreamableLink):
                link.drop()
    await wait_until_async(lambda: len(riglm.children(recursive=True)) <= children, "no child is left")
    await wait_until_async(lambda: descriptors(riglm.pid) <= files, "no file is left open")


@routes(STDIO_BACK, MODERN)
async def test_modern_clients_share_one_child(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route) as client:
        pids = {(await client.call("whoami")).decoded()["structuredContent"]["pid"] for _ in range(3)}
        if route.front == "http":
            async with stage.client(route) as other:
                pids.add((await other.call("whoami")).decoded()["structuredContent"]["pid"])
    assert len(pids) == 1
    assert len(log.entries("started")) == 1


@routes(STDIO_BACK)
async def test_a_child_gets_the_environment_of_the_client(stage: Stage, route: Route):
    async with stage.client(route, env={"SOMETHING_OF_MINE": "1"}) as client:
        about = (await client.call("whoami", {"env": ["SOMETHING_OF_MINE", "PATH"]})).decoded()["structuredContent"]
    assert about["env"]["PATH"] == os.environ["PATH"]
    assert about["env"]["SOMETHING_OF_MINE"] == "1"


def _fails(stage: Stage, *arguments: str, **env: str) -> str:
    ended = subprocess.run(
        stage.riglm(*arguments),
        env={**stage.env, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, b""), ended
    said = ended.stderr.decode()
    assert "Traceback" not in said
    return said


def test_a_missing_command_is_named(stage: Stage):
    assert "no-such-command-anywhere" in _fails(stage, "run", "--", "no-such-command-anywhere", "--flag")


def test_an_open_address_without_a_token_is_refused(stage: Stage):
    assert "token" in _fails(stage, "serve", "--host", "0.0.0.0", "--port", str(free_port()), "--", *stage.scripted())


async def test_input_that_ends_before_the_first_message_ends_riglm(stage: Stage):
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted()))
    async with RawClient(link, HANDSHAKE):
        pass
    assert link.exit_code == 0
