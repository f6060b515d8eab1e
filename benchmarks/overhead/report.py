"""The results as tables, with ratios within the run."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.overhead.run import Results

Format = Callable[[float], str]


def seconds(value: float) -> str:
    """In the unit that fits."""
    return f"{value * 1e6:.0f} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.2f} s"


def mebibytes(value: float) -> str:
    """In MiB."""
    return f"{value:.0f} MiB"


def kibibytes(value: float) -> str:
    """In KiB."""
    return f"{value:.1f} KiB"


def count(value: float) -> str:
    """A number of things."""
    return f"{value:,.0f}"


def rows(sizes: Sequence[int]) -> Iterator[tuple[str, str, Format]]:
    """Label, name and format of each figure that a topology may have."""
    yield from ((f"start to first list, {size} tools", f"start_{size}", seconds) for size in sizes)
    for size in sizes:
        for what in ("p50", "p99"):
            yield f"tools/list of {size}, {what}", f"list_{size}_{what}", seconds
        yield f"tools/list of {size}, processor time", f"list_{size}_processor", seconds
    yield "tools/call, p50", "call_p50", seconds
    yield "tools/call, p99", "call_p99", seconds
    yield "tools/call, processor time", "call_processor", seconds
    yield "calls/s, 16 in flight", "rate_16", count
    yield "64 calls of 20 ms, 32 in flight", "slow_calls", seconds
    yield "sessions that could be opened", "sessions_opened", count
    yield "calls/s over these sessions", "sessions_rate", count
    yield "a call in one of them, p99", "sessions_p99", seconds
    yield "wrong answers in them", "sessions_wrong", count
    yield "upstream requests for a list and a call", "upstream_requests", count
    yield "memory at rest", "rest_mib", mebibytes
    yield "memory under load", "loaded_mib", mebibytes
    yield "memory with these sessions", "sessions_mib", mebibytes
    yield "left by a closed session", "closed_kib", kibibytes
    yield "left by an abandoned session", "abandoned_kib", kibibytes


def show(topology: str, results: Results, sizes: Sequence[int], console: Console) -> None:
    """A table of one topology: a row a figure, and riglm beside each of the others."""
    names = list(results)
    others = [name for name in names if name != "riglm"]
    ahead, behind = topology.split("-")
    table = Table(title=f"Client over {ahead}, upstream over {behind}", title_justify="left")
    table.add_column("")
    for heading in (*names, *(f"riglm ÷ {other}" for other in others)):
        table.add_column(heading, justify="right")
    for label, figure, form in rows(sizes):
        values = {name: results[name].get(figure) for name in names}
        if all(value is None for value in values.values()):
            continue
        cells = ["" if value is None else form(value) for value in values.values()]
        table.add_row(label, *cells, *(_ratio(values["riglm"], values[other]) for other in others))
    console.print(table)


def _ratio(ours: float | None, theirs: float | None) -> str:
    if ours is None or not theirs or ours < 0 or theirs < 0:
        return ""
    ratio = ours / theirs
    return f"{ratio:.0f} x" if ratio >= 20 else f"{ratio:.2g} x"
