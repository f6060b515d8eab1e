import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Self

import psutil
import pytest

from riglm.adapters.mcp.upstream.channel import Receiver
from riglm.adapters.mcp.upstream.process import Child, ProcessReaper
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from tests.unit.adapters.upstream.actors import notification, request, settle, within
from tests.waiting import wait_until_async

SCRIPT = str(Path(__file__).with_name("child.py"))
LIMIT = 65_536


class Hearing(Receiver):
    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.misses: list[str] = []
        self.missing: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def received(self, message: Message) -> None:
        assert not self.end.done(), "nothing comes after the end"
        self.lines.put_nowait(message.line)

    def missed(self, words: str, key: bytes | None = None) -> None:
        if key is None:
            self.misses.append(words)
        else:
            self.missing.put_nowait((key, words))

    def ended(self, words: str) -> None:
        self.end.set_result(words)


class Running:
    """A child that runs, and what it says."""

    def __init__(
        self, reaper: ProcessReaper, *modes: str, limit: int = LIMIT, grace: float = 5.0, **spec: object
    ) -> None:
        self.gone: list[Child] = []
        self.hearing = Hearing()
        command = (sys.executable, "-I", "-S", SCRIPT, *modes)
        self.child = Child(
            UpstreamSpec(**{"name": "server", "kind": "stdio", "command": command, **spec}),  # type: ignore[arg-type]
            reaper,
            limit=limit,
            grace=grace,
            receiver=self.hearing,
            on_gone=self.gone.append,
        )

    async def __aenter__(self) -> Self:
        await within(self.child.start())
        return self

    async def __aexit__(self, *_: object) -> None:
        await within(self.child.close())
        assert not alive(self.child._group)

    def notify(self, method: str, identifier: object = 1, **params: object) -> None:
        self.child.write(request(identifier, method, params))

    async def hear(self) -> dict[str, object]:
        line = await within(self.hearing.lines.get())
        found: dict[str, object] = json.loads(line)
        return found

    async def ended(self) -> str:
        return await within(self.hearing.end)


def alive(group: int) -> bool:
    """Whether any process of a group runs; what is dead and not yet collected does not."""
    for found in psutil.process_iter():
        try:
            if os.getpgid(found.pid) == group and found.status() != psutil.STATUS_ZOMBIE:
                return True
        except (psutil.Error, ProcessLookupError):
            continue
    return False


def is_missing(pid: int) -> bool:
    """Whether a process has ended, collected or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def reaper():
    reaper = ProcessReaper()
    yield reaper
    reaper.close()


async def test_what_a_child_says_before_it_goes_is_heard_before_its_end(reaper):
    async with Running(reaper, limit=4_000_000) as running:
        running.notify("answer and die", size=2_000_000)
        assert len((await running.hear())["result"]) == 2_000_000
        assert await running.ended() == "exited with code 0"
        assert running.child.is_missing


async def test_what_a_child_says_on_standard_error_reaches_no_client_and_the_log_only_at_debug(reaper, caplog):
    caplog.set_level(logging.INFO)
    async with Running(reaper) as running:
        running.notify("die", code=3)
        words = await running.ended()
    assert words == "exited with code 3; riglm's log has its standard error with `logging.level: debug`"
    assert "my last words" not in str([vars(record) for record in caplog.records])


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_the_last_words_of_a_child_that_ends_before_it_was_asked_anything_are_a_warning(reaper, caplog, method):
    caplog.set_level(logging.INFO)
    async with Running(reaper, "stillborn") as running:
        running.notify(method)
        assert await running.ended() == "exited with code 4; riglm's log has its last words"
    [said] = [record for record in caplog.records if hasattr(record, "said")]
    assert (said.levelname, said.upstream, said.said) == ("WARNING", "server", "a traceback\nmy last words")


@pytest.mark.parametrize("which", ["input", "output"])
async def test_a_child_that_closed_a_pipe_is_of_no_use_and_ended(reaper, which):
    async with Running(reaper, grace=0.2) as running:
        running.notify(f"close {which}")
        if which == "input":
            await running.hear()
            running.notify("hello")
        assert await running.ended() == "closed its input or output"
        assert running.gone == []
    assert running.gone == [running.child]


async def test_a_child_gets_the_standard_streams_alone(reaper, tmp_path):
    with (tmp_path / "file").open("wb") as file:
        os.set_inheritable(file.fileno(), True)
        async with Running(reaper) as running:
            running.notify("hello")
            await running.hear()
            open_files = {each.fd for each in psutil.Process(running.child._group).open_files()}
            assert file.fileno() not in open_files


async def test_what_a_dead_child_left_behind_does_not_hold_up_its_end_and_is_ended(reaper):
    async with Running(reaper) as running:
        running.notify("spawn", die=True)
        left = (await running.hear())["result"]
        assert await running.ended() == "exited with code 0"
        assert psutil.Process(left).is_running()
    await wait_until_async(lambda: is_missing(left))


@pytest.mark.parametrize("size", [70_000, 1_000_000])
@pytest.mark.parametrize("form", ["id first", "id last"])
async def test_an_answer_over_the_limit_is_missed_under_its_id(reaper, form, size):
    async with Running(reaper) as running:
        running.notify("hello", identifier=0)
        running.notify("long", identifier="\u00e9", form=form, size=size)
        running.notify("hello", identifier=2)
        await running.hear()
        key, words = await within(running.hearing.missing.get())
        assert key == jsonrpc.id_key(b'"\\u00e9"')
        assert "`limits.message_bytes` allows 65536" in words
        assert (await running.hear())["id"] == 2
        assert running.hearing.misses == []


async def test_a_notification_over_the_limit_is_nobodys_answer(reaper):
    async with Running(reaper) as running:
        running.notify("long", form="notification", size=100_000)
        running.notify("hello", identifier=2)
        assert (await running.hear())["id"] == 2
        assert running.hearing.misses == []


async def test_a_child_that_does_not_read_is_told_no_more_than_a_bound(reaper):
    async with Running(reaper, "deaf", grace=0.1) as running:
        await within(running.hearing.lines.get())
        message = notification("x" * 60_000)
        with pytest.raises(UpstreamUnavailableError, match=r"does not read its input: \d+ bytes wait"):
            [running.child.write(message) for _ in range(100)]
        assert running.child._stdin.get_write_buffer_size() <= 5 * LIMIT


def test_a_guardian_that_cannot_start_is_logged_and_does_not_stop_anything(monkeypatch, caplog):
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no processes left")

    monkeypatch.setattr("riglm.adapters.mcp.upstream.process.subprocess.Popen", refuse)
    reaper = ProcessReaper()
    reaper.watch(1)
    reaper.release(1)
    reaper.close()
    assert "children are not watched" in caplog.text


async def test_what_a_child_said_last_while_it_was_held_back_is_heard_before_its_end(reaper):
    async with Running(reaper) as running:
        running.notify("hello")
        await running.hear()
        running.child.hold(on=True)
        running.child.hold(on=True)
        running.notify("answer and die", size=10)
        await wait_until_async(lambda: running.child.is_missing)
        await settle()
        assert running.hearing.lines.empty()
        assert running.child._ending is None, "nothing counts down to its end"
        running.child.hold(on=False)
        assert (await running.hear())["result"] == "x" * 10
        await running.ended()
