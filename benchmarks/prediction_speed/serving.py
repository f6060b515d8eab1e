"""Lists, calls, starts and memory of a running riglm: as it comes, without a filter, and no riglm at all."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.load.message import echo
from benchmarks.load.resources import processor_seconds, resident_mib
from benchmarks.load.stdio_session import StdioSession
from benchmarks.subject import RIGLM, isolated

TOOLS = 500
_MANY_TOOLS = 3_000
_LISTS = 100
_CALLS = 300
_QUIET_SECONDS = 1.0
_DEADLINE_SECONDS = 180.0
_STATUS = {"RIGLM_FILTERING__META_TOOLS__INDEX_STATUS": "true"}
_ARMS = {"direct": None, "riglm --no-filter": ("--no-filter",), "riglm": ()}


def run() -> None:
    """Print a table with an arm in each row, and what embedding 3,000 tools does to calls meanwhile."""
    print(
        f"\n{TOOLS} tools on pipes\n"
        "| arm | first list ms | list p50 ms | p99 | call p50 ms | p99 | cpu ms a list | a call | at rest MiB |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for label, options in _ARMS.items():
        with _session(options) as (session, first):
            _measure(label, session, first)
    with _session((), RIGLM_EMBEDDER__PROVIDER="static") as (session, first):
        _measure("riglm, no model", session, first)
    with _session((), tools=_MANY_TOOLS) as (session, _):
        _measure_while_embedding(session)


@contextmanager
def _session(
    options: tuple[str, ...] | None, *, tools: int = TOOLS, **settings: str
) -> Iterator[tuple[StdioSession, float]]:
    """A session over an upstream of its own, and the milliseconds from its start to its first list."""
    upstream = [sys.executable, "-m", "benchmarks.load.upstream", "stdio", str(tools)]
    command = upstream if options is None else [*RIGLM, "run", *options, "--", *upstream]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        began = time.perf_counter()
        session = StdioSession(command, directory / "log", isolated(directory / "data") | _STATUS | settings)
        try:
            session.open()
            session.ask("tools/list", {})
            yield session, (time.perf_counter() - began) * 1e3
        finally:
            session.close()


def _measure(label: str, session: StdioSession, first: float) -> None:
    if label not in ("direct", "riglm --no-filter"):
        _wait_embedded(session)
    worked = _processor_ms(session)
    lists = [session.ask("tools/list", {})[0] * 1e3 for _ in range(_LISTS)]
    listing = (_processor_ms(session) - worked) / _LISTS
    worked = _processor_ms(session)
    calls = [session.ask("tools/call", echo("hello"))[0] * 1e3 for _ in range(_CALLS)]
    time.sleep(_QUIET_SECONDS)
    worked = (_processor_ms(session) - worked) / _CALLS
    memory = resident_mib(session.pid)
    figures = " | ".join(f"{np.quantile(taken, share):.2f}" for taken in (lists, calls) for share in (0.5, 0.99))
    print(f"| {label} | {first:.0f} | {figures} | {listing:.2f} | {worked:.2f} | {memory:.0f} |", flush=True)


def _measure_while_embedding(session: StdioSession) -> None:
    meanwhile: list[float] = []
    _search(session)
    began = time.perf_counter()
    while _embedded(session) < _MANY_TOOLS and time.perf_counter() - began < _DEADLINE_SECONDS:
        meanwhile += [session.ask("tools/call", echo("hello"))[0] * 1e3 for _ in range(100)]
    took = time.perf_counter() - began
    afterwards = [session.ask("tools/call", echo("hello"))[0] * 1e3 for _ in range(len(meanwhile))]
    print(f"\nwhile {_MANY_TOOLS} tools are embedded ({took:.0f} s): a call")
    for label, taken in (("meanwhile", meanwhile), ("afterwards", afterwards)):
        p50, p99, most = np.quantile(taken, (0.5, 0.99, 1.0))
        print(f"  {label}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {most:.2f} ms")


def _wait_embedded(session: StdioSession) -> None:
    _search(session)
    until = time.perf_counter() + _DEADLINE_SECONDS
    while _embedded(session) < TOOLS and time.perf_counter() < until:
        time.sleep(0.2)


def _search(session: StdioSession) -> None:
    session.ask("tools/call", {"name": "search_available_tools", "arguments": {"query": "say it again"}})


def _embedded(session: StdioSession) -> int:
    answer = session.ask("tools/call", {"name": "index_status", "arguments": {}})[1].content()
    return int(json.loads(answer["content"][0]["text"])["tools"]["embedded"])


def _processor_ms(session: StdioSession) -> float:
    return processor_seconds(session.pid) * 1e3
