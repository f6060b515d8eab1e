"""What a long request costs, and how long others wait for it: `python -m benchmarks.long_requests [--mebibytes 15]`.

For each input: CPU time of `riglm serve` for each MiB, its peak memory relative to the message, and the longest call of
another client meanwhile.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil

from benchmarks.cache import CHECKOUT
from benchmarks.load import resources
from benchmarks.load.http_session import HttpSession
from benchmarks.subject import RIGLM, Served

_TOOLS: Final = "10"
_PAUSE_SECONDS: Final = 0.01
_MIB: Final = 2**20
_DEFAULT_BYTES: Final = 16 * _MIB
"""The default of `limits.request_bytes`."""

_CALL: Final = {"name": "bench_echo", "arguments": {"text": "x"}}


def _call(arguments: bytes, more: bytes = b"") -> bytes:
    params = b'{"name":"bench_echo","arguments":%b%b}' % (arguments, more)
    return b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":%b}' % params


def _text(unit: bytes, size: int, before: bytes = b"") -> bytes:
    return _call(b'{"text":"%b%b"}' % (before, unit * (size // len(unit))))


INPUTS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "plain text": lambda size: _text(b"a", size),
    "escaped backslashes, one lone surrogate": lambda size: _text(rb"\\", size, rb"\ud800"),
    "lone surrogates": lambda size: _text(rb"\ud800", size),
    "pairs of surrogates": lambda size: _text(rb"\ud83d\ude00", size),
    "escaped letters": lambda size: _text(rb"\u0041", size),
    "escaped names": lambda size: _call(b"{}", rb',"_met\u0061":[%b""]' % (rb'"n\u0061me",' * (size // 12))),
    "empty arrays": lambda size: _call(b'{"text":[%b[]]}' % (b"[]," * (size // 3))),
}


def _post(port: int, body: bytes) -> None:
    session = HttpSession(port)
    session.open()
    session.send("POST", body)
    while not session.is_answered:
        session.read()


class _Watch(threading.Thread):
    """Another client's calls, and the memory of riglm, until `stopped` is set."""

    def __init__(self, session: HttpSession, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.longest = 0.0
        self.peak = 0
        self._session = session
        self._process = process

    def run(self) -> None:
        while not self.stopped.wait(_PAUSE_SECONDS):
            began = time.perf_counter()
            self._session.ask("tools/call", _CALL)
            self.longest = max(self.longest, time.perf_counter() - began)
            self.peak = max(self.peak, self._process.memory_info().rss)


def _row(name: str, body: bytes, port: int, process: psutil.Process, session: HttpSession) -> str:
    watch, sender = _Watch(session, process), multiprocessing.Process(target=_post, args=(port, body))
    memory, cpu = process.memory_info().rss, sum(process.cpu_times()[:2])
    watch.start()
    sender.start()
    sender.join()
    watch.stopped.set()
    watch.join()
    spent = 1000 * (sum(process.cpu_times()[:2]) - cpu) / (len(body) / 2**20)
    times = (watch.peak - memory) / len(body)
    return f"| {name} | {spent:.0f} ms | {times:.1f} | {1000 * watch.longest:.0f} ms |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=15, help="size of a request; the limit is raised if needed")
    size = parser.parse_args().mebibytes * _MIB
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", resources.UPSTREAM, "stdio", _TOOLS]
        file = Path(folder) / "riglm.yaml"
        upstream = {"command": command[0], "args": command[1:], "cwd": str(CHECKOUT)}
        limits = {"request_bytes": max(_DEFAULT_BYTES, size + _MIB)}
        file.write_text(json.dumps({"upstream": upstream, "limits": limits}))
        served = Served(RIGLM, ("--config", str(file)), Path(folder) / "data", arguments=())
        with served.process:
            session = HttpSession(served.port)
            session.open()
            print("| input | CPU time for each MiB | peak memory / message | longest call of another client |")
            print("|---|---:|---:|---:|")
            for name, body_of in INPUTS.items():
                print(_row(name, body_of(size), served.port, psutil.Process(served.process.pid), session), flush=True)


if __name__ == "__main__":
    main()
