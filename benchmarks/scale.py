"""What a session, a call and a learned pair cost, and what many teams would need: `python -m benchmarks.scale`.

Costs are measured on stores of their own: bytes on disk with all indexes, processor time of the process that stores,
bytes in memory of what a process keeps. What teams need follows from them by multiplication, and a small simulation of
a working day says how much higher the peaks are than the mean.
"""

import argparse
import json
import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.store_filling import STORES, TOOLS, Shape, a_session_of, fill
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.session_sharing.session_record import encoded
from riglm.application.session_sharing.shared_connections import ConnectionRecord
from riglm.application.session_sharing.signing import StateSigner
from riglm.application.tracking.maintenance import STORED_PAIRS_RATIO
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.schemas.section import LearningSettings
from riglm.domain.session import Session, uuid7
from riglm.domain.session_state import SessionState
from riglm.ports.analytics import AnalyticsPort, Record

_DIMENSIONS = 384
_TERMS = 24
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of one record of each kind: bytes on disk with indexes, and microseconds of processor time to store it."""

    store: str
    session_bytes: float
    invocation_bytes: float
    exposure_bytes: float
    learned_pair_bytes: float
    invocation_us: float
    session_us: float
    learned_pair_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Teams:
    """What is assumed of those who use riglm, and how long their records are kept."""

    teams: int = 1000
    people: int = 8
    sessions_a_day: float = 6.0
    calls_a_session: float = 25.0
    lists_a_session: float = 3.0
    working_days: int = 21
    kept_days: int = 180
    kept_days_of_lists: int = 90
    contexts_a_session: float = 1.5
    hours: float = 9.0
    minutes_a_session: float = 25.0


_SHARED_SESSIONS = 2_000
_HANDSHAKE = (
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":'
    '{"roots":{},"elicitation":{}},"clientInfo":{"name":"claude-code","version":"2.1.0"}}}'
)
_CONTEXT = "Fix the failing login test in the web app: find out why the cookie is not set, and open a pull request."


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What teams need in all."""

    sessions_a_day: float
    calls_a_day: float
    records_a_second_mean: float
    records_a_second_peak: float
    calls_a_second_peak: float
    open_sessions_peak: int
    rows: float
    gigabytes: dict[str, float]
    learned_pairs: int


def a_pair(chance: np.random.Generator, number: int) -> LearnedPair:
    """A learned pair of the size that the embedded model makes."""
    return LearnedPair(
        id=uuid7(),
        scope=f"{number % 200:032x}",
        tool=TOOLS[number % len(TOOLS)],
        model="sentence-transformers/all-MiniLM-L6-v2",
        vector=chance.standard_normal(_DIMENSIONS).astype(np.float32),
        confidence=0.8,
        uses=3,
        updated_at=time.time(),
        description_hash=f"{number:032x}",
        terms=tuple(int(term) for term in chance.integers(0, 2**32, _TERMS)),
        session_id=uuid7(),
    )


def measure(kind: str, rows: int, console: Console) -> Costs:
    """The costs on one store, each as the difference that further records of a kind make."""
    with STORES[kind]() as url, SqlAnalytics(url) as store:
        fill(store, rows // 5, shape=Shape(), first=0.0, days=1.0, console=console)  # lists and first pages
        chance = random.Random(1)
        sessions = rows // 20
        with_sessions = _grown(store, lambda: _only(chance, sessions, Shape(calls=0, lists=0)))
        with_calls = _grown(store, lambda: _only(chance, rows // 100, Shape(calls=100, lists=0)))
        with_lists = _grown(store, lambda: _only(chance, rows // 50, Shape(calls=0, lists=10)))
        numbers = np.random.default_rng(1)
        pairs = min(20_000, rows // 10)
        with_pairs = _grown(store, lambda: [a_pair(numbers, number) for number in range(pairs)])
        of_session = with_sessions[0] / sessions, with_sessions[1] / sessions
        in_calls, in_lists = rows // 100, rows // 50
        return Costs(
            store=kind,
            session_bytes=round(of_session[0]),
            invocation_bytes=round((with_calls[0] - of_session[0] * in_calls) / (in_calls * 100)),
            exposure_bytes=round((with_lists[0] - of_session[0] * in_lists) / (in_lists * 10)),
            learned_pair_bytes=round(with_pairs[0] / pairs),
            session_us=round(of_session[1] * 1e6, 1),
            invocation_us=round((with_calls[1] - of_session[1] * in_calls) / (in_calls * 100) * 1e6, 1),
            learned_pair_us=round(with_pairs[1] / pairs * 1e6, 1),
        )


def _only(chance: random.Random, sessions: int, shape: Shape) -> list[Record]:
    return [record for _ in range(sessions) for record in a_session_of(shape, time.time(), chance)]


def _grown(store: AnalyticsPort, make: Callable[[], list[Record]]) -> tuple[float, float]:
    """By how many bytes these records make the store grow, and the seconds of this process that it takes."""
    records = make()
    before = store.size_bytes()
    began = time.process_time()
    for start in range(0, len(records), _BATCH):
        store.record_many(records[start : start + _BATCH])
    return store.size_bytes() - before, time.process_time() - began


def memory() -> dict[str, float]:
    """Bytes in a riglm process of an idle session, and of a learned pair."""
    chance = random.Random(5)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tools = tuple(sorted(TOOLS))
    sessions = []
    for _ in range(2_000):
        [session] = a_session_of(Shape(calls=0, lists=0), 0.0, chance)
        assert isinstance(session, Session)
        session.tools_available = tools
        sessions.append(session)
    of_session = (tracemalloc.get_traced_memory()[0] - before) / len(sessions)
    numbers = np.random.default_rng(2)
    before = tracemalloc.get_traced_memory()[0]
    pairs = LearnedPairs()
    pairs.restore([a_pair(numbers, number) for number in range(5_000)])
    of_pair = (tracemalloc.get_traced_memory()[0] - before) / 5_000
    tracemalloc.stop()
    return {"session": round(of_session), "learned_pair": round(of_pair)}


def shared_state() -> float:
    """Bytes in Valkey of a session in mid-work with its connection and what it is recognised by."""
    import redis
    from tests.stores import valkey

    sealer, chance = StateSigner(bytes(32)), random.Random(9)
    with redis.Redis.from_url(valkey.shared_url()) as client:
        before = int(client.info("memory")["used_memory"])
        for number in range(_SHARED_SESSIONS):
            [session] = a_session_of(Shape(calls=0, lists=0), time.time(), chance)
            assert isinstance(session, Session)
            state = SessionState(context=Context(text=_CONTEXT), turn=3)
            for tool in chance.choices(chance.sample(TOOLS, 6), k=25):
                state.called(tool, time.time())
            state.listed(tuple(chance.sample(TOOLS, 20)))
            link = ConnectionRecord(owner=session.principal, session=session.id, handshake=_HANDSHAKE)
            values = {
                sealer.name("session", str(session.id)): encoded(session, state),
                sealer.name("place", str(number)): str(session.id).encode(),
                sealer.name("link", str(number)): link.encoded(),
            }
            for name, plain in values.items():
                client.set(f"riglm:{name}", sealer.seal(name, plain), ex=1800)
        return round((int(client.info("memory")["used_memory"]) - before) / _SHARED_SESSIONS)


def needs(teams: Teams, costs: list[Costs], seed: int = 11) -> Needs:
    """What these teams need."""
    people = teams.teams * teams.people
    sessions = people * teams.sessions_a_day
    calls = sessions * teams.calls_a_session
    records = sessions * (2 + teams.calls_a_session + teams.lists_a_session)  # a session is written when it ends too
    pairs = min(
        STORED_PAIRS_RATIO * LearningSettings().max_pairs, int(sessions * teams.contexts_a_session * teams.working_days)
    )
    kept = teams.kept_days / 30.4 * teams.working_days
    kept_lists = teams.kept_days_of_lists / 30.4 * teams.working_days
    rows = {
        "session": sessions * kept,
        "invocation": calls * kept,
        "exposure": sessions * teams.lists_a_session * kept_lists,
        "learned_pair": pairs,
    }
    size = {
        each.store: round(sum(rows[kind] * getattr(each, f"{kind}_bytes") for kind in rows) / 1e9, 1) for each in costs
    }
    peak_calls, open_sessions = simulate(teams, seed)
    return Needs(
        sessions_a_day=sessions,
        calls_a_day=calls,
        records_a_second_mean=round(records / (teams.hours * 3600), 1),
        records_a_second_peak=round(records / calls * peak_calls, 1),
        calls_a_second_peak=round(peak_calls, 1),
        open_sessions_peak=open_sessions,
        rows=round(sum(rows.values())),
        gigabytes=size,
        learned_pairs=pairs,
    )


def simulate(teams: Teams, seed: int) -> tuple[float, int]:
    """One working day: the most calls in any second, and the most sessions open at once.

    Sessions begin more often in the middle of the morning and of the afternoon. Calls of a session come in bursts, as
    an agent makes them: a few within seconds, then minutes of thought.
    """
    chance = np.random.default_rng(seed)
    day = int(teams.hours * 3600)
    count = int(teams.teams * teams.people * teams.sessions_a_day)
    hours = np.where(
        chance.random(count) < 0.5, chance.normal(2.0, 1.2, count), chance.normal(teams.hours - 2.5, 1.2, count)
    )
    starts = np.clip(hours * 3600, 0, day - 1)
    lengths = chance.exponential(teams.minutes_a_session * 60, count)
    bursts = chance.poisson(teams.calls_a_session / 5.0, count) + 1
    session = np.repeat(np.arange(count), bursts)
    at = starts[session] + chance.random(len(session)) * lengths[session]
    sizes = chance.poisson(4.0, len(session)) + 1
    moments = np.repeat(at, sizes) + chance.exponential(6.0, int(sizes.sum())) * 1.0
    per_second = np.bincount(np.clip(moments, 0, 2 * day).astype(int))
    edges = np.concatenate([starts, starts + lengths])
    steps = np.concatenate([np.ones(count), -np.ones(count)])
    open_now = np.cumsum(steps[np.argsort(edges, kind="stable")])
    return float(per_second.max()), int(open_now.max())


def show(costs: list[Costs], kept: dict[str, float], needed: Needs, teams: Teams, console: Console) -> None:
    """Print tables for people."""
    table = Table(title="What one record costs", title_justify="left")
    for column in ("store", "session", "call", "list shown", "learned pair", "CPU: session", "call", "learned pair"):
        table.add_column(column, justify="left" if column == "store" else "right")
    for each in costs:
        sizes = (each.session_bytes, each.invocation_bytes, each.exposure_bytes, each.learned_pair_bytes)
        times = (each.session_us, each.invocation_us, each.learned_pair_us)
        table.add_row(each.store, *(f"{size:,.0f} B" for size in sizes), *(f"{us:.0f} µs" for us in times))
    console.print(table)
    console.print(
        f"in memory: a session {kept['session']:,.0f} B, a learned pair {kept['learned_pair']:,.0f} B; "
        f"in Valkey: a session in mid-work {kept['session_in_valkey']:,.0f} B"
    )
    table = Table(title=f"What {teams.teams:,} teams of {teams.people} need", title_justify="left")
    table.add_column("what")
    table.add_column("number", justify="right")
    for name, value in asdict(needed).items():
        told = ", ".join(f"{store} {size:,}" for store, size in value.items()) if isinstance(value, dict) else value
        table.add_row(name.replace("_", " "), told if isinstance(told, str) else f"{told:,}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="About so many of each kind of record.")
    parser.add_argument("--teams", type=int, default=1000)
    parser.add_argument("--people", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="Print JSON only.")
    given = parser.parse_args()
    told = Console(stderr=True)
    costs = [measure(kind, given.rows, told) for kind in STORES]
    teams = Teams(teams=given.teams, people=given.people)
    needed, kept = needs(teams, costs), {**memory(), "session_in_valkey": shared_state()}
    if given.json:
        whole = {"costs": [asdict(each) for each in costs], "memory": kept, "teams": asdict(teams)}
        print(json.dumps({**whole, "needs": asdict(needed)}, indent=2))
    else:
        show(costs, kept, needed, teams, Console(width=120))


if __name__ == "__main__":
    main()
