"""A child process that sends and receives one message per line."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from riglm.adapters.mcp.upstream.channel import MessageChannel, Receiver, answered_id, not_an_answer, report_unreadable
from riglm.adapters.mcp.wire.messages import LineSplitter, MessageDecoder
from riglm.domain.errors import TOO_FEW_PROCESSES, UpstreamUnavailableError
from riglm.domain.jsonrpc import MalformedMessageError, Message
from riglm.domain.upstream import UpstreamSpec

_log = logging.getLogger("riglm.upstream")

_GRACE_SECONDS: Final = 1
_WAIT_SECONDS: Final = 3

_SCRIPT: Final = f"""
trap '' INT TERM HUP
groups=' '
while read -r change group; do
  case $change in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${{groups%% "$group" *}} ${{groups#* "$group" }}" ;; esac ;;
  esac
done
alive=
for group in $groups; do kill -TERM -"$group" 2>/dev/null && alive="$alive $group"; done
if [ -n "$alive" ]; then
  sleep {_GRACE_SECONDS}
  for group in $alive; do kill -KILL -"$group" 2>/dev/null; done
fi
"""
"""Reads which process groups start (`+ PGID`) and end (`- PGID`) until its input ends: then riglm is dead.

A shell, because it waits for as long as riglm lives and a tenth of the memory of another Python does.
"""


class ProcessReaper:
    """A process that outlives riglm just long enough to end what riglm started; it starts with the first child."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """End this process group when riglm dies."""
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT, "riglm-guardian"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                )
            except OSError as error:
                _log.warning(
                    "children are not watched: should riglm be killed, they stay", extra={"reason": str(error)}
                )
                return
        self._notify(b"+ %d\n" % group)

    def release(self, group: int) -> None:
        """The process group has ended."""
        self._notify(b"- %d\n" % group)

    def close(self) -> None:
        """Release the guardian; it ends the groups that it still watches."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_WAIT_SECONDS)
            self._process = None

    def _notify(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), line)


_STDERR_LINE: Final = 8192
_MAX_UNREAD: Final = 4
_LAST_OUTPUT_SECONDS: Final = 0.25
_ONE_ROUND_SECONDS: Final = 0.001
_LAST_WORDS: Final = 10
_OPENINGS: Final = frozenset({"initialize", "server/discover", "ping"})
"""Requests that carry nothing of what a client works with."""

_MAX_OPENING_LENGTH: Final = 1 << 16


def _close_other_files_on_exec() -> None:
    """Let the program that replaces this process have the standard streams and none of the other open files."""
    files: list[str] = []
    with contextlib.suppress(OSError):  # not every system has this directory
        files = os.listdir("/dev/fd")  # noqa: PTH208  # names alone
    for file in files:
        if int(file) > 2:
            with contextlib.suppress(OSError):  # the directory was among them, and is closed by now
                os.set_inheritable(int(file), False)


class Child(asyncio.SubprocessProtocol, MessageChannel):
    """One running child in a separate process group, so that what it starts ends with it."""

    def __init__(
        self,
        spec: UpstreamSpec,
        reaper: ProcessReaper,
        *,
        limit: int,
        grace: float,
        receiver: Receiver,
        on_gone: Callable[["Child"], None],
    ) -> None:
        """A child that is not started yet.

        Args:
            spec: what to start.
            reaper: terminates the child if riglm is killed.
            limit: the longest line in bytes; four times as much may wait for the child to read it.
            grace: seconds for it to go before it is ended, and again before it is killed.
            receiver: receives its messages.
            on_gone: called when it has ended, for any reason, or could not be started.
        """
        self.closing = False
        """Whether riglm itself ends it."""
        self._spec = spec
        self._reaper = reaper
        self._limit = limit
        self._grace = grace
        self._receiver = receiver
        self._on_gone = on_gone
        self._decoder = MessageDecoder(receiver.received, self._malformed, lambda on: self._pause("decoding", on=on))
        self._stdout = LineSplitter(self._decoder.feed, self._too_long, limit)
        self._stderr = LineSplitter(self._complained, lambda *_: None, _STDERR_LINE)
        self._process: asyncio.SubprocessTransport | None = None
        self._stdin: Any = None
        self._group = 0
        self._gone = asyncio.Event()
        self._open_pipes = {0, 1, 2}
        self._ended = False
        self._ending: asyncio.TimerHandle | None = None
        self._pauses: set[str] = set()
        self._last_words: deque[bytes] | None = deque(maxlen=_LAST_WORDS)
        """The last lines of its standard error; None once they may quote what a client sent."""
        self._complains = False

    async def start(self) -> None:
        """Start the process.

        Raises:
            UpstreamUnavailableError: the command cannot be run.
        """
        loop = asyncio.get_running_loop()
        try:
            process, _ = await loop.subprocess_exec(
                lambda: self,
                *self._spec.command,
                env=_inherited() | dict(self._spec.env),
                cwd=self._spec.cwd,
                start_new_session=True,
                # uvloop leaves copies of the pipes open in the child: they would hide that it closed its output.
                preexec_fn=_close_other_files_on_exec if type(loop).__module__.startswith("uvloop") else None,
            )
        except BaseException as error:
            self._abandon()
            if isinstance(error, OSError):
                reason = TOO_FEW_PROCESSES if isinstance(error, BlockingIOError) else error.strerror or error
                words = f"cannot run {self._spec.command[0]!r}: {reason}"
                raise UpstreamUnavailableError(words) from error
            raise
        self._stdin = process.get_pipe_transport(0)

    @property
    def is_missing(self) -> bool:
        """Whether the process ended."""
        return self._gone.is_set()

    def hand_over(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._decoder.on_message = receiver.received

    def hold(self, *, on: bool) -> None:
        """Stop reading the child's output, so that it has to wait, or resume; its end is still noticed in its turn."""
        self._pause("hold", on=on)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the guardian watch the new group before anything else happens."""
        self._process = cast("asyncio.SubprocessTransport", transport)
        self._group = self._process.get_pid()
        self._reaper.watch(self._group)

    def write(self, message: Message) -> None:
        if self._stdin is None or self._stdin.is_closing():
            return
        if self._last_words is not None and (
            message.method not in _OPENINGS or len(message.line) > _MAX_OPENING_LENGTH
        ):
            self._last_words = None
        unread = self._stdin.get_write_buffer_size()
        if unread > self._limit * _MAX_UNREAD:
            raise UpstreamUnavailableError(f"does not read its input: {unread} bytes wait for it already")
        self._stdin.writelines((message.line, b"\n"))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Split what the child says into lines."""
        (self._stdout if fd == 1 else self._stderr).feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe ended."""
        if fd == 2:
            self._stderr.end()
        self._open_pipes.discard(fd)
        self._settle()

    def process_exited(self) -> None:
        """The child has ended, though some of its last output may not have been read yet."""
        self._gone.set()
        self._on_gone(self)
        self._settle()

    async def close(self) -> None:
        if self._process is None:
            return
        self.closing = True
        if self._ending is not None:
            self._ending.cancel()
        self._decoder.close()
        for reason in list(self._pauses):
            self._pause(reason, on=False)  # it can only go when it can write what it has
        if self._stdin is not None:
            self._stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await self._went(self._grace):
                break
            self._kill(number)
        await self._went(self._grace)
        await self._end_group()
        if self._stdin is not None and self._stdin.get_write_buffer_size():
            self._stdin.abort()  # a process that left the group may hold the pipe and not read it
        self._process.close()

    def _pause(self, reason: str, *, on: bool) -> None:
        """Stop reading the child's output, or resume once there is no reason left not to."""
        pipe: Any = None if self._process is None else self._process.get_pipe_transport(1)
        if pipe is None or (reason in self._pauses) == on:
            return
        had_reasons = bool(self._pauses)
        (self._pauses.add if on else self._pauses.discard)(reason)
        if bool(self._pauses) == had_reasons:
            return
        if not pipe.is_closing():
            (pipe.pause_reading if on else pipe.resume_reading)()
        if not on:
            self._settle()
        elif self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _settle(self) -> None:
        """End the channel once the child has ended and all its output is read, or a little after the first sign of it.

        Processes that a child left behind may hold its pipes open, and one that closed its pipes is useless.
        A last line without its newline still counts if it is complete, but not before the end: its receiver may send
        the next request.
        """
        if self.closing or self._pauses:
            return
        if self._gone.is_set() and self._open_pipes <= {0}:
            self._end()
        elif self._ending is None and (self._gone.is_set() or not self._open_pipes >= {0, 1}):
            self._ending = asyncio.get_running_loop().call_later(_LAST_OUTPUT_SECONDS, self._end_soon)

    def _end_soon(self) -> None:
        """Read once more: if riglm itself had to wait for the processor, the time is over before anything was read."""
        self._ending = asyncio.get_running_loop().call_later(_ONE_ROUND_SECONDS, self._end)

    def _end(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if self._ended:
            return
        self._ended = True
        self._stdout.end()
        self._decoder.end(self._report_end)

    def _report_end(self) -> None:
        code = self._process.get_returncode() if self._process is not None else None
        if code is None:
            how = "closed its input or output"
        else:
            how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        self._receiver.ended(how + self._where_it_says_why())

    def _where_it_says_why(self) -> str:
        """Log the last output of a child that failed to start, and the file that has it; no client gets it.

        Servers quote on standard error what they are asked, so of one that was asked anything riglm logs them at
        debug only.
        """
        if not self._complains:
            return ""
        if self._last_words is None:
            return "; riglm's log has its standard error with `logging.level: debug`"
        words = b"\n".join(self._last_words).decode("utf-8", "replace")
        _log.warning("a server ended before it was asked anything", extra={"upstream": self._spec.name, "said": words})
        return "; riglm's log has its last words"

    def _abandon(self) -> None:
        """It did not come to a start, or not to its end."""
        self.closing = True
        if self._kill(signal.SIGKILL):
            self._reaper.release(self._group)
        self._on_gone(self)

    async def _went(self, seconds: float) -> bool:
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
        self._reaper.release(self._group)

    def _kill(self, number: int) -> bool:
        if not self._group:  # group 0 would be our own
            return False
        try:
            os.killpg(self._group, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _malformed(self, error: MalformedMessageError, line: bytes) -> None:
        if not self._ended:  # else it is a last line without its newline
            report_unreadable(line, error, self._receiver, self._spec.name)

    def _complained(self, line: bytes) -> None:
        self._complains = True
        if self._last_words is not None:
            self._last_words.append(line)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("stderr", extra={"upstream": self._spec.name, "line": line.decode("utf-8", "replace")})

    def _too_long(self, size: int, head: bytes, tail: bytes) -> None:
        """A line over the limit was skipped: report whose response it was.

        Its ends were seen, and nearly every server writes the id at one of them. If it is found at neither, it is
        unknown whose response is lost, and every request in flight fails instead of waiting for its timeout.
        """
        words = f"sent {size} bytes in one message, and `limits.message_bytes` allows {self._limit}"
        _log.warning("skipped a line over the limit", extra={"upstream": self._spec.name, "bytes": size})
        key = answered_id(head, tail)
        if key is not None:
            self._receiver.missed(words, key)
        elif not not_an_answer(head):
            self._receiver.missed(f"{words}; which request it answered is not known")


def _inherited() -> dict[str, str]:
    """Return the environment of a server: that of its client without riglm's settings and secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
