"""What is left running five seconds after riglm was ended, in every way that there is."""

import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cache import CHECKOUT
from benchmarks.load.flood import open_sessions
from benchmarks.load.message import echo
from benchmarks.load.resources import marked
from benchmarks.load.stdio_session import StdioSession
from benchmarks.overhead.target import upstream_command
from benchmarks.process import Process
from benchmarks.sessions.finding import Finding
from benchmarks.subject import Served, isolated

_MARK = "RIGLM_BENCHMARK_MARK"
_SECONDS = 5.0
_SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGKILL": signal.SIGKILL}
_STUBBORN = ("/usr/bin/env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "benchmarks.sessions.stubborn")
_UPSTREAMS = {
    "a polite upstream": tuple(upstream_command("stdio", 10)),
    "one that ignores EOF and SIGTERM": (*_STUBBORN, "ignores"),
    "one with children": (*_STUBBORN, "parent"),
}


def end(riglm: tuple[str, ...], directory: Path) -> Iterator[Finding]:
    """End `riglm run` and `riglm serve` by signals, and `run` by the end of its input too.

    Raises:
        NoAnswer: riglm did not answer while it still should.
        StartFailed: riglm did not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, upstream in _UPSTREAMS.items():
        for ending in ("EOF", *_SIGNALS):
            yield _ended_run(riglm, upstream, ending, f"run, {name}, {ending}", directory)
        for ending in _SIGNALS:
            yield _ended_serve(riglm, upstream, ending, f"serve, {name}, {ending}", directory)


def _ended_run(riglm: tuple[str, ...], upstream: tuple[str, ...], ending: str, what: str, directory: Path) -> Finding:
    mark = uuid.uuid4().hex
    environment = isolated(directory) | {_MARK: mark}
    command = [*riglm, "run", "--no-filter", "--", *upstream]
    session = StdioSession(command, directory / "run.log", environment, directory)
    try:
        session.open()
        session.ask("tools/call", echo("ok"))[1].text()
        _end(session.process, ending)
        return _left(mark, what)
    finally:
        session.close()


def _ended_serve(riglm: tuple[str, ...], upstream: tuple[str, ...], ending: str, what: str, directory: Path) -> Finding:
    mark = uuid.uuid4().hex
    served = Served(riglm, ["--", *upstream], directory / mark, **{_MARK: mark})
    try:
        for session in open_sessions(served.port, 2):
            session.ask("tools/call", echo("ok"))[1].text()
            session.close()
        _end(served.process, ending)
        return _left(mark, what)
    finally:
        served.process.stop()


def _end(process: Process, ending: str) -> None:
    if ending == "EOF":
        assert process.popen.stdin is not None
        process.popen.stdin.close()
    else:
        os.kill(process.pid, _SIGNALS[ending])


def _left(mark: str, what: str) -> Finding:
    began = time.monotonic()
    while (left := marked(_MARK, mark)) and time.monotonic() < began + _SECONDS:
        time.sleep(0.1)
    note = "" if left else f"the last one ended after {time.monotonic() - began:.1f} s"
    for process in left:
        process.kill()
    return Finding(f"{what}: processes after {_SECONDS:g} s", len(left), limit=0, note=note)
