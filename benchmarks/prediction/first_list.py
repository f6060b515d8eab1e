"""The first list of a riglm over a store of use: how much longer than a server alone takes for it."""

import contextlib
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.load import catalog
from benchmarks.load.stdio_session import StdioSession
from benchmarks.subject import RIGLM, isolated
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport, uuid7

TOOLS = 60
_STARTS = 10
_SESSIONS = 1_000
_CALLS = 50
_DIMENSIONS = 384
_MODEL = "bench"
_UPSTREAM = [sys.executable, "-m", "benchmarks.load.upstream", "stdio", str(TOOLS)]


def run() -> None:
    """Print the milliseconds from the start, and from the request, to the first list: median and longest of ten."""
    print(
        f"\nthe first list of {TOOLS} tools, {_STARTS} starts\n"
        "| arm | store | from the start ms | longest | from the request ms | longest | tools shown |\n"
        "|---|---|---:|---:|---:|---:|---:|"
    )
    with tempfile.TemporaryDirectory() as name:
        _print("direct", "", _UPSTREAM, Path(name) / "direct", "")
        for label, pairs in (("empty", None), ("50,000 calls", 0), ("and 5,000 pairs", 5_000)):
            data = Path(name) / label
            if pairs is not None:
                _fill(data, pairs)
            for surface in ("dynamic", "stable"):
                _print(f"riglm, {surface}", label, [*RIGLM, "run", "--", *_UPSTREAM], data, surface)


def _print(label: str, store: str, command: list[str], data: Path, surface: str) -> None:
    """One row; each start is the first of an epoch."""
    data.mkdir(exist_ok=True)
    taken = [_first_list(command, data, surface) for _ in range(_STARTS)]
    starts, requests, shown = zip(*taken, strict=True)
    figures = " | ".join(f"{np.median(each):.0f} | {max(each):.0f}" for each in (starts, requests))
    print(f"| {label} | {store} | {figures} | {', '.join(map(str, sorted(set(shown))))} |", flush=True)


def _first_list(command: list[str], data: Path, surface: str) -> tuple[float, float, int]:
    with _copy(data) as own:
        began = time.perf_counter()
        session = StdioSession(command, own / "log", isolated(own) | {"RIGLM_FILTERING__SURFACE": surface})
        try:
            session.open()
            asked, answer, _ = session.ask("tools/list", {})
            return (time.perf_counter() - began) * 1e3, asked * 1e3, len(answer.content()["tools"])
        finally:
            session.close()


@contextlib.contextmanager
def _copy(data: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield shutil.copytree(data, Path(name) / "data")


def _fill(data: Path, pairs: int) -> None:
    """Sessions of the last days, in which half of the tools were used, and pairs that were learned in them."""
    data.mkdir(exist_ok=True)
    chance, now = np.random.default_rng(0), time.time()
    names = [tool["name"] for tool in catalog.make(TOOLS)]
    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        for number in range(_SESSIONS):
            began = now - (_SESSIONS - number) * 600.0
            session = Session(
                started_at=began,
                era=ProtocolEra.HANDSHAKE,
                transport=Transport.STDIO,
                method=IdentificationMethod.PROCESS,
                client=ClientInfo(name="bench"),
            )
            store.record_many([session, *_calls(session, [names[place] for place in chance.integers(0, 30, _CALLS)])])
        store.record_many([_pair(names[number % 30], chance, now) for number in range(pairs)])
    with contextlib.closing(sqlite3.connect(data / "riglm.db")) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _calls(session: Session, tools: list[str]) -> list[ToolInvocation]:
    return [
        ToolInvocation(
            id=uuid7(),
            session_id=session.id,
            tool=tool,
            upstream="benchmarks",
            timestamp=session.started_at + number,
            duration_ms=1.0,
            success=True,
            sequence_number=number + 1,
            found=DiscoveryMethod.LISTED,
        )
        for number, tool in enumerate(tools)
    ]


def _pair(tool: str, chance: np.random.Generator, now: float) -> LearnedPair:
    vector = chance.standard_normal(_DIMENSIONS).astype(np.float32)
    return LearnedPair(
        id=uuid7(),
        scope="",
        tool=tool,
        model=_MODEL,
        vector=vector / np.linalg.norm(vector),
        confidence=1.0,
        uses=1,
        updated_at=now,
    )
