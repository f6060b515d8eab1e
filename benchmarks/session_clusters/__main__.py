"""How well session clusters agree with known kinds of work, and how little the order of learning matters.

    python -m benchmarks.session_clusters [--data DIR] [--json]

Agreement is the adjusted Rand index (Hubert and Arabie 1985): 1 for equal partitions, about 0 for random ones.
Stability is its mean over all pairs of ten clusterings, each after the sessions came in a different order: of all
sessions, and of those that two windows of the latest half have in common. DIR is `RIGLM_EVAL_DATA`, by default
`../shared/data`. Exit code 1 if a set has an agreement below 0.6 or a stability below 0.9.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.evaluation.dataset import read_tools, rows
from benchmarks.evaluation.retrieval import open_embedder
from riglm.domain.retrieval.words import request_texts
from riglm.domain.session_clusters import ClusteredCall, SessionProfile, cluster_sessions
from riglm.ports.embedder import EmbedderPort

_MIN_AGREEMENT: Final = 0.6
_MIN_STABILITY: Final = 0.9
_ORDERS: Final = 10

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Labels:
    """Known kinds of work of a set: `is_required` if its clusters must agree with them."""

    set: str
    title: str
    label: Callable[[Row], str]
    is_required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The agreement of one set's clusters with known kinds of work; `seconds` is the time to cluster it once."""

    set: str
    labels: str
    sessions: int
    kinds: int
    clusters: int
    agreement: float
    agreement_without_contexts: float
    stability: float
    stability_of_halves: float
    seconds: float
    is_required: bool

    @property
    def is_right(self) -> bool:
        good = self.agreement >= _MIN_AGREEMENT and min(self.stability, self.stability_of_halves) >= _MIN_STABILITY
        return good or not self.is_required


def labels_in(data: Path) -> list[Labels]:
    """The labels of each set; none of them depends on the clusters."""
    work = data / "workbench"
    servers = {tool.name: tool.server for tool in read_tools(work)}
    wanted: dict[str, set[str]] = {}
    for row in rows(work / "dev" / "queries.jsonl"):
        wanted.setdefault(row["group"], set()).update(servers[tool] for tool in row["tools"])

    def by_answer(row: Row) -> str:
        return " ".join(sorted(wanted.get(row["group"], ())))

    def by_most_called(row: Row) -> str:
        return Counter(servers[call] for call in row["calls"]).most_common(1)[0][0]

    return [
        Labels("workbench", "servers of the template's reference answers", by_answer),
        Labels("taubench", "domain", lambda row: row["group"].partition("-")[0]),
        Labels("toolathlon", "family: first word of the task", lambda row: row["group"].partition("-")[0]),
        Labels("workbench", "server called most", by_most_called, is_required=False),
        Labels("workbench", "file, one for all of several domains", lambda row: row["id"].rpartition("-")[0], False),
    ]


def read_profiles(directory: Path, embedder: EmbedderPort) -> tuple[list[Row], list[SessionProfile]]:
    """The sessions of a set's development side, with the features by which they are clustered."""
    servers = {tool.name: tool.server for tool in read_tools(directory)}
    found = list(rows(directory / "dev" / "sessions.jsonl"))
    vectors = embedder.embed_public([request_texts(row["context"])[0] for row in found])
    return found, [
        SessionProfile(calls=[ClusteredCall(call, servers[call]) for call in row["calls"]], context=vector)
        for row, vector in zip(found, vectors, strict=True)
    ]


def adjusted_rand_index(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """The agreement of two partitions of the same items."""

    def pairs(items: Sequence[Hashable]) -> float:
        return sum(count * (count - 1) / 2 for count in Counter(items).values())

    both, first, second = pairs(list(zip(one, other, strict=True))), pairs(one), pairs(other)
    expected = first * second / max(len(one) * (len(one) - 1) / 2, 1)
    most = (first + second) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def stability(profiles: Sequence[SessionProfile], share: float) -> float:
    """The mean agreement of clusterings of the latest `share` of the sessions, in ten orders."""
    found: list[dict[int, int]] = []
    for seed in range(_ORDERS):
        order = random.Random(seed).sample(range(len(profiles)), len(profiles))
        latest = order[-round(share * len(order)) :]
        found.append(dict(zip(latest, cluster_sessions([profiles[place] for place in latest]), strict=True)))
    agreements = []
    for one, other in combinations(found, 2):
        common = sorted(one.keys() & other.keys())
        agreements.append(adjusted_rand_index([one[place] for place in common], [other[place] for place in common]))
    return mean(agreements)


def measure(
    title: str, labels: str, known: Sequence[str], profiles: Sequence[SessionProfile], **options: Any
) -> Finding:
    began = time.perf_counter()
    found = cluster_sessions(profiles)
    seconds = time.perf_counter() - began
    by_calls = cluster_sessions([replace(profile, context=None) for profile in profiles])
    return Finding(
        set=title,
        labels=labels,
        sessions=len(profiles),
        kinds=len(set(known)),
        clusters=len(set(found)),
        agreement=adjusted_rand_index(known, found),
        agreement_without_contexts=adjusted_rand_index(known, by_calls),
        stability=stability(profiles, 1.0),
        stability_of_halves=stability(profiles, 0.5),
        seconds=seconds,
        **options,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RIGLM_EVAL_DATA", "../shared/data")))
    parser.add_argument("--json", action="store_true", help="print JSON only")
    chosen = parser.parse_args()
    with open_embedder() as embedder:
        kinds = labels_in(chosen.data)
        read = {name: read_profiles(chosen.data / name, embedder) for name in dict.fromkeys(kind.set for kind in kinds)}
    findings, pooled = [], []
    for kind in kinds:
        sessions, profiles = read[kind.set]
        known = [kind.label(row) for row in sessions]
        findings.append(measure(kind.set, kind.title, known, profiles, is_required=kind.is_required))
        if kind.is_required:
            pooled += [(f"{kind.set} {label}", profile) for label, profile in zip(known, profiles, strict=True)]
    everything = [profile for _, profile in pooled]
    findings.append(measure("all three", "set and label", [label for label, _ in pooled], everything, is_required=True))
    if chosen.json:
        print(json.dumps([asdict(finding) | {"is_right": finding.is_right} for finding in findings], indent=1))
    else:
        show(findings)
    return 0 if all(finding.is_right for finding in findings) else 1


def show(findings: Sequence[Finding]) -> None:
    table = Table("set", "labels", title="Session clusters", title_justify="left")
    for column in ("sessions", "kinds", "clusters", "ARI", "without contexts", "10 orders", "10 halves", "ms"):
        table.add_column(column, justify="right")
    for each in findings:
        figures = (each.agreement, each.agreement_without_contexts, each.stability, each.stability_of_halves)
        numbers = (each.sessions, each.kinds, each.clusters)
        row = (*map(str, numbers), *(f"{figure:.2f}" for figure in figures), f"{1000 * each.seconds:.0f}")
        table.add_row(each.set, each.labels, *row, style=None if each.is_right else "red")
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())
