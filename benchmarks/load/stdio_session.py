"""One client on the pipes of a program that it starts."""

import os
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.load.message import INITIALIZE, Answer, NoAnswer, notification, parse, request
from benchmarks.process import Process

_SECONDS = 60.0
clock = time.perf_counter


class StdioSession:
    """Speaks the wire by hand, so that its own cost stays at a few microseconds a call."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], directory: Path | None = None
    ) -> None:
        """Start the program; nothing is said yet."""
        self.process = Process(command, log, environment=environment, directory=directory, pipes=True)
        self.pid = self.process.pid
        assert self.process.popen.stdin is not None
        assert self.process.popen.stdout is not None
        self._in, self._out = self.process.popen.stdin.fileno(), self.process.popen.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._rest = b""
        self._last_id = 0

    def open(self) -> None:
        """Shake hands.

        Raises:
            NoAnswer: the other side refused, or is gone.
        """
        self.ask("initialize", INITIALIZE)[1].content()
        self._write(notification("notifications/initialized") + b"\n")

    def ask(self, method: str, params: Any) -> tuple[float, Answer, int]:
        """The seconds from the last byte sent to the last byte of the answer, the answer, and its bytes.

        Raises:
            NoAnswer: none came.
        """
        self._last_id += 1
        data = request(method, params, self._last_id) + b"\n"
        start = clock()
        self._write(data)
        while True:
            lines = self._lines()
            took = clock() - start
            for line in lines:
                answer = parse(line)
                if answer.id == self._last_id and answer.method is None:
                    return took, answer, len(line)

    def flood(self, params: Any, total: int, in_flight: int) -> tuple[float, list[float]]:
        """Call `total` times with at most so many unanswered: the seconds in all, and of each call."""
        sent: dict[int, float] = {}
        latencies: list[float] = []
        start = clock()
        self._push(params, min(in_flight, total), sent)
        while sent:
            answered = 0
            for answer in map(parse, self._lines()):
                if answer.method is None and isinstance(answer.id, int) and answer.id in sent:
                    latencies.append(clock() - sent.pop(answer.id))
                    answer.text()
                    answered += 1
            self._push(params, min(answered, total - len(latencies) - len(sent)), sent)
        return clock() - start, latencies

    def close(self) -> None:
        """End the program."""
        self.process.stop()

    def _push(self, params: Any, count: int, sent: dict[int, float]) -> None:
        lines = []
        for _ in range(count):
            self._last_id += 1
            sent[self._last_id] = clock()
            lines.append(request("tools/call", params, self._last_id) + b"\n")
        self._write(b"".join(lines))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._in, view) :]

    def _lines(self) -> list[bytes]:
        chunks = [self._rest]
        while True:
            if not self._poll.poll(1000 * _SECONDS):
                raise NoAnswer(f"nothing within {_SECONDS:g} s")
            data = os.read(self._out, 1 << 20)
            if not data:
                raise NoAnswer(f"closed its output: {self.process.last_words()}")
            chunks.append(data)
            if b"\n" in data:
                *lines, self._rest = b"".join(chunks).split(b"\n")
                return lines
