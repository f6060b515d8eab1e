"""Whether calls feel that the configuration changes: many PUTs while calls run.

    python -m benchmarks.control put [--puts 1000] [--rate 100] [--json]

Every tenth document is a bad one, which must change nothing. Exit code 1 if a call failed, or a PUT was answered
otherwise than it should.
"""

import argparse
import http.client
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.control.served import Riglm, opened, served
from benchmarks.load.http_session import HttpSession
from benchmarks.load.message import NoAnswer

_CLIENTS: Final = 4
_CALL: Final = {"name": "bench_echo", "arguments": {"text": "it"}}
_BAD: Final[tuple[Any, ...]] = (
    {"filtering": {"max_tools": 0}},
    {"predictor": {"kind": "no-such-predictor"}},
    {"filtering": {"max_tools": 3, "min_tools": 9}},
    {"control": {"port": 1}},
    {"storage": {"kind": "memory"}},
)


def main(words: Sequence[str]) -> int:
    """Change, and print what became of it."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.control put",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--puts", type=int, default=1_000)
    options.add_argument("--rate", type=float, default=100.0, help="calls a second, of all clients together")
    options.add_argument("--json", action="store_true", help="print JSON only")
    chosen = options.parse_args(words)
    with (
        tempfile.TemporaryDirectory(prefix="riglm-bench-") as name,
        served(Path(name) / "on", control=True, stored=1_000, now=time.time()) as riglm,
    ):
        found = _changed_under_load(riglm, chosen.puts, chosen.rate)
    if chosen.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(f"{name:22}{value}" for name, value in found.items()))
    return 1 if found["failed calls"] or found["wrong answers"] or not found["calls"] else 0


def _changed_under_load(riglm: Riglm, puts: int, rate: float) -> dict[str, Any]:
    over = threading.Event()
    outcomes: list[tuple[float, str]] = []
    callers = [
        threading.Thread(target=_call, args=(session, over, _CLIENTS / rate, outcomes))
        for session in opened(riglm.port, _CLIENTS)
    ]
    for each in callers:
        each.start()
    began = time.perf_counter()
    try:
        answers, wrong, waits = _put(riglm, puts)
    finally:
        over.set()
        for each in callers:
            each.join()
    seconds = time.perf_counter() - began
    failed = Counter(why for _, why in outcomes if why)
    waited = sorted(wait for wait, _ in outcomes)
    return {
        "puts": puts,
        "answers": dict(answers),
        "wrong answers": wrong,
        "put, median ms": round(sorted(waits)[len(waits) // 2] * 1e3, 2),
        "seconds": round(seconds, 1),
        "calls": len(outcomes),
        "calls a second": round(len(outcomes) / seconds, 1),
        "call, median ms": round(waited[len(waited) // 2] * 1e3, 2) if waited else None,
        "call, p99 ms": round(waited[int(len(waited) * 0.99)] * 1e3, 2) if waited else None,
        "failed calls": dict(failed),
    }


def _call(session: HttpSession, over: threading.Event, pause: float, outcomes: list[tuple[float, str]]) -> None:
    due = time.perf_counter()
    while not over.wait(max(0.0, due - time.perf_counter())):
        due += pause
        began = time.perf_counter()
        try:
            answer = session.ask("tools/call", _CALL)[1]
            why = "isError" if answer.content().get("isError") else ""
        except (NoAnswer, OSError) as error:
            why = repr(error)
        outcomes.append((time.perf_counter() - began, why))


def _put(riglm: Riglm, puts: int) -> tuple[Counter[int], int, list[float]]:
    """All PUTs one after the other: how many were answered how, how many wrongly, and how long each took."""
    connection = http.client.HTTPConnection("127.0.0.1", riglm.control or 0, timeout=60)
    answers: Counter[int] = Counter()
    wrong, version = 0, ""
    waits = []
    for number in range(puts):
        is_bad = number % 10 == 9
        document = _BAD[number // 10 % len(_BAD)] if is_bad else {"filtering": {"max_tools": 6 + number % 20}}
        began = time.perf_counter()
        connection.request("PUT", "/config", json.dumps(document), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        shown = answer.read()
        waits.append(time.perf_counter() - began)
        answers[answer.status] += 1
        if is_bad:
            connection.request("GET", "/config")
            after = connection.getresponse()
            after.read()
            wrong += answer.status not in (403, 422) or after.headers["ETag"] != version
        else:
            wrong += answer.status != 200 or json.loads(shown)["filtering"]["max_tools"] != 6 + number % 20
            version = answer.headers["ETag"] or ""
    connection.close()
    return answers, wrong, waits
