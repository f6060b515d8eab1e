"""A raw client's pipe to a child process."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.interaction.clients.link import Receiver
from tests.preloaded import Forked, can_start, start


class ForkedPipes:
    """A forked riglm and the streams to it, like a process of asyncio's."""

    def __init__(self, forked: Forked, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._forked = forked
        self.pid = forked.pid
        self.stdin = stdin
        self.stdout = stdout

    @classmethod
    async def open(cls, command: Sequence[str], env: Mapping[str, str], stderr: int, cwd: Path | None) -> Self:
        """Start riglm and open its streams."""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        forked = start(command, env, stdin=reading, stderr=stderr, cwd=cwd)
        os.close(reading)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(writing, "wb", buffering=0)
        )
        stdout = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), forked.stdout)
        return cls(forked, asyncio.StreamWriter(transport, protocol, None, loop), stdout)

    async def wait(self) -> int:
        """Its exit code, once it ended."""
        while (code := self._forked.poll()) is None:
            await asyncio.sleep(0.002)
        return code


class StdioLink:
    """Starts a command in a process group of its own and speaks to it line by line."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], stderr: Path, cwd: Path | None = None) -> None:
        self.command = command
        self._env = env
        self._cwd = cwd
        self.stderr = stderr
        self.exit_code: int | None = None
        self.process: ForkedPipes | asyncio.subprocess.Process

    async def open(self, receiver: Receiver) -> None:
        """Start the command."""
        self._receiver = receiver
        with self.stderr.open("ab") as stderr:
            if can_start(self.command, self._env):
                self.process = await ForkedPipes.open(self.command, self._env, stderr.fileno(), self._cwd)
            else:
                self.process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    env=dict(self._env),
                    cwd=self._cwd,
                    start_new_session=True,
                )
        self._reading = asyncio.create_task(self._read())

    async def send(self, raw: bytes) -> object:
        """Write one line."""
        await self.write(raw + b"\n")
        return self

    async def write(self, raw: bytes) -> None:
        """Write bytes as they are."""
        assert self.process.stdin
        self.process.stdin.write(raw)
        await self.process.stdin.drain()

    async def abandon(self, stream: object) -> bool:
        """A pipe has no streams to close."""
        return False

    async def close(self, within: float = 20.0) -> None:
        """End the input and wait for the process to go by itself; one that stays is killed and fails the test."""
        assert self.process.stdin
        self.process.stdin.close()
        try:
            async with asyncio.timeout(within):
                self.exit_code = await self.process.wait()
                await self._reading
        except TimeoutError:
            raise AssertionError(f"still running {within} s after the end of its input: {self.command}") from None
        finally:
            self.kill()
            self._reading.cancel()
            self.exit_code = await self.process.wait()

    def kill(self) -> None:
        """Kill the whole process group, if it is still there."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    async def _read(self) -> None:
        assert self.process.stdout
        parts: list[bytes] = []
        while data := await self.process.stdout.read(1 << 18):
            *whole, rest = data.split(b"\n")
            for line in whole:
                self._receiver.received(b"".join((*parts, line)), self)
                parts.clear()
            if rest:
                parts.append(rest)
        if parts:
            self._receiver.received(b"".join(parts), self)
        self._receiver.stream_ended(self, ConnectionError("the process closed its output"))
