"""A child process that speaks one message a line."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from riglm.adapters.mcp.wire.framing import LineSplitter, well_formed
from riglm.domain.errors import UpstreamUnavailable
from riglm.domain.upstream import UpstreamSpec

_log = logging.getLogger("riglm.upstream")
_GUARDIAN = Path(__file__).with_name("guardian.py")
_STDERR_LINE = 8192


class Channel(Protocol):
    """Carries whole messages to and from one upstream."""

    def write(self, line: bytes) -> None:
        """Send one message; a channel that closed ignores it."""

    async def close(self) -> None:
        """Close, and end what holds the other side."""


class Guardian:
    """The process that ends our children should we die without doing so; started with the first child."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """End this process group when riglm dies."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARDIAN)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        self._tell(b"+%d\n" % group)

    def release(self, group: int) -> None:
        """The process group is gone."""
        self._tell(b"-%d\n" % group)

    def close(self) -> None:
        """Let the guardian go; it ends whatever is still watched."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(3)
            self._process = None

    def _tell(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), line)


class Child(asyncio.SubprocessProtocol):
    """One running child in its own process group, so that what it starts ends with it."""

    def __init__(
        self,
        spec: UpstreamSpec,
        guardian: Guardian,
        *,
        limit: int,
        grace: float,
        on_line: Callable[[bytes], None],
        on_exit: Callable[[str], None],
    ) -> None:
        """A child that is not started yet; `limit` is the longest line in bytes, `grace` in seconds."""
        self._spec = spec
        self._guardian = guardian
        self._grace = grace
        self._on_exit = on_exit
        self._stdout = LineSplitter(lambda line: on_line(well_formed(line)), self._too_long, limit)
        self._stderr = LineSplitter(self._complained, lambda _: None, _STDERR_LINE)
        self._process: asyncio.SubprocessTransport | None = None
        self._stdin: Any = None
        self._group = 0
        self._gone = asyncio.Event()
        self._open_pipes = {1, 2}
        self._last_words = ""

    async def start(self) -> None:
        """Start the process.

        Raises:
            UpstreamUnavailable: the command cannot be run.
        """
        loop = asyncio.get_running_loop()
        try:
            process, _ = await loop.subprocess_exec(
                lambda: self,
                *self._spec.command,
                env={**os.environ, **self._spec.env},
                cwd=self._spec.cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise UpstreamUnavailable(f"cannot run {self._spec.command[0]!r}: {error.strerror or error}") from error
        self._process = process
        self._stdin = process.get_pipe_transport(0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the guardian watch the new group before anything else happens."""
        process = cast("asyncio.SubprocessTransport", transport)
        self._group = process.get_pid()
        self._guardian.watch(self._group)

    def write(self, line: bytes) -> None:
        """Send one message."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(line + b"\n")

    def pause(self) -> None:
        """Stop reading until `resume`."""
        self._reading("pause_reading")

    def resume(self) -> None:
        """Read on."""
        self._reading("resume_reading")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Split what the child says into lines."""
        (self._stdout if fd == 1 else self._stderr).feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe ended; a last line without its newline still counts."""
        if fd == 1:
            self._stdout.end()
        elif fd == 2:
            self._stderr.end()
        self._open_pipes.discard(fd)
        if fd == 1 and self._process is not None and self._process.get_returncode() is None:
            self._kill(signal.SIGTERM)  # a server that closed its output cannot answer any more

    def process_exited(self) -> None:
        """The child is gone: say why, once its last output was read."""
        asyncio.get_running_loop().call_soon(self._exited)

    async def close(self) -> None:
        """Close the child's input and wait; then ask it to go; then kill it, with all that it started."""
        if self._process is None:
            return
        if self._stdin is not None:
            self._stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await self._is_gone(self._grace):
                break
            self._kill(number)
        await self._is_gone(self._grace)
        await self._end_group()
        self._process.close()

    def _exited(self) -> None:
        code = self._process.get_returncode() if self._process is not None else None
        self._gone.set()
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
        self._on_exit(how + (f"; its last words: {self._last_words}" if self._last_words else ""))

    async def _is_gone(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), seconds)
        return self._gone.is_set()

    async def _end_group(self) -> None:
        """End what the child left behind in its group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._kill(number):
                break
            for _ in range(20):
                if not self._kill(0):
                    break
                await asyncio.sleep(0.025)
        self._guardian.release(self._group)

    def _kill(self, number: int) -> bool:
        try:
            os.killpg(self._group, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _reading(self, verb: str) -> None:
        stdout = self._process.get_pipe_transport(1) if self._process is not None else None
        if stdout is not None and not stdout.is_closing():
            with contextlib.suppress(RuntimeError):
                getattr(stdout, verb)()

    def _complained(self, line: bytes) -> None:
        self._last_words = line.decode("utf-8", "replace").strip()[:300] or self._last_words
        _log.info("stderr", extra={"upstream": self._spec.name, "line": self._last_words})

    def _too_long(self, size: int) -> None:
        _log.warning("skipped a line over the limit", extra={"upstream": self._spec.name, "bytes": size})
