"""All targets in front of the same upstream, kept open together and visited in turn."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load.message import echo
from benchmarks.load.resources import resident_mib
from benchmarks.overhead import measure
from benchmarks.overhead.measure import Record
from benchmarks.overhead.target import Running, Target, Topology, start, start_upstream

Results = dict[str, dict[str, float]]
"""Figures by target and name; seconds, MiB, KiB or counts."""


def run(
    targets: Sequence[Target], topology: Topology, sizes: Sequence[int], rounds: int, say: Callable[[str], None]
) -> Results:
    """Measure one topology: everything at the first size, start and tools/list at the others.

    Raises:
        StartFailed: a target did not start.
        NoAnswer: a target gave a wrong answer, or none.
    """
    records = {target.name: Record() for target in targets}
    for number, tools in enumerate(sizes):
        say(f"{topology}, {tools} tools")
        _at_one_size(targets, topology, tools, records, rounds=rounds, whole=number == 0)
    return {name: record.summary() for name, record in records.items()}


def _at_one_size(
    targets: Sequence[Target], topology: Topology, tools: int, records: dict[str, Record], *, rounds: int, whole: bool
) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="riglm-overhead-")))
        upstream, port = start_upstream(tools, directory)
        stack.callback(upstream.stop)
        open_targets: list[Running] = []
        for target in targets:
            starts = [start(target, topology, tools, upstream, port, directory) for _ in range(2 if whole else 1)]
            for running in starts:
                stack.callback(running.stop)
                if target.command or topology.startswith("stdio"):  # else there is nothing to start
                    records[target.name].figure(f"start_{tools}", running.start_seconds)
            open_targets.append(starts[-1])
        if whole:
            for running in open_targets:
                _at_rest(running, records[running.target.name])
        for number in range(rounds):
            turn = number % len(open_targets)
            for running in open_targets[turn:] + open_targets[:turn]:
                _one_round(running, records[running.target.name], tools, whole=whole)
        if whole:
            for running in open_targets:
                _at_the_end(running, records[running.target.name], topology)


def _at_rest(running: Running, record: Record) -> None:
    measure.upstream_requests(running, record)
    if running.target.command:
        record.figure("rest_mib", resident_mib(running.pid))


def _one_round(running: Running, record: Record, tools: int, *, whole: bool) -> None:
    measure.one_at_a_time(running, record, f"list_{tools}", "tools/list", {}, measure.LISTS)
    if whole:
        measure.one_at_a_time(running, record, "call", "tools/call", echo("ok"), measure.CALLS)
        measure.in_flight(running, record)


def _at_the_end(running: Running, record: Record, topology: Topology) -> None:
    if running.target.command:
        record.figure("loaded_mib", resident_mib(running.pid))
    if topology == "http-http" and running.target.command:
        measure.left_behind(running, record, politely=True)
        measure.left_behind(running, record, politely=False)
    if topology.startswith("http"):
        measure.many_sessions(running, record)
