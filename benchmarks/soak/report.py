"""What a soak measured, minute by minute: growth, and a page with plots."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Final

WARM_UP_MINUTES: Final = 10
"""Minutes at the beginning that do not count for growth."""

_MIN_MINUTES: Final = 10
_MAX_SLOPE: Final = 1.0
_MAX_RATIO: Final = 1.5
_WIDTH, _HEIGHT = 720, 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """One minute: memory in MiB, open files and threads of riglm, calls' latency in milliseconds, and operations."""

    minute: int
    memory: float
    files: int
    threads: int
    p50: float
    p99: float
    operations: int
    failed: int


def slope(minutes: Sequence[Minute]) -> float:
    """Return the growth of memory in MiB an hour, by Theil and Sen: the median of the slopes of all pairs."""
    pairs = [
        (later.memory - earlier.memory) / (later.minute - earlier.minute)
        for place, earlier in enumerate(minutes)
        for later in minutes[place + 1 :]
    ]
    return 60 * statistics.median(pairs) if pairs else 0.0


def growth(minutes: Sequence[Minute]) -> list[str]:
    """Return what grew after the warm-up; a soak that is too short for that is not judged."""
    counted = [minute for minute in minutes if minute.minute > WARM_UP_MINUTES]
    if len(counted) < _MIN_MINUTES:
        return []
    found = []
    if (memory := slope(counted)) > _MAX_SLOPE:
        found.append(f"memory grew by {memory:.1f} MiB an hour")
    third = len(counted) // 3
    values: dict[str, tuple[Callable[[Minute], float], float]] = {
        "open files": (lambda minute: minute.files, 4),
        "threads": (lambda minute: minute.threads, 2),
    }
    for name, (value, noise) in values.items():
        first, last = (statistics.median(map(value, part)) for part in (counted[:third], counted[-third:]))
        if last > first + noise:
            found.append(f"{name} grew from {first:g} to {last:g}")
    first, last = (statistics.median(minute.p99 for minute in part) for part in (counted[:third], counted[-third:]))
    if last > _MAX_RATIO * first + 1:
        found.append(f"the p99 of calls grew from {first:.1f} to {last:.1f} ms")
    return found


def write(folder: Path, minutes: Sequence[Minute], verdict: Sequence[str]) -> Path:
    """Write `soak.json` and `soak.html`; return the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "verdict": list(verdict),
        "slope": slope(minutes[WARM_UP_MINUTES:]),
        "minutes": list(map(asdict, minutes)),
    }
    (folder / "soak.json").write_text(json.dumps(document, indent=1), "utf-8")
    plots = {
        "Memory, MiB": [minute.memory for minute in minutes],
        "Open files": [float(minute.files) for minute in minutes],
        "Threads": [float(minute.threads) for minute in minutes],
        "Calls, p50, ms": [minute.p50 for minute in minutes],
        "Calls, p99, ms": [minute.p99 for minute in minutes],
        "Operations a minute": [float(minute.operations) for minute in minutes],
        "Failed operations a minute": [float(minute.failed) for minute in minutes],
    }
    said = "".join(f"<li>{escape(words)}</li>" for words in verdict) or "<li>nothing grew, and no answer was wrong</li>"
    body = "".join(f"<h2>{escape(title)}</h2>{_plot(values)}" for title, values in plots.items())
    page = folder / "soak.html"
    style = "body{font:16px sans-serif;max-width:760px;margin:2em auto}path{fill:none;stroke:#2563eb;stroke-width:1.5}"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><title>Soak</title><style>{style}</style><ul>{said}</ul>{body}"
    )
    return page


def _plot(values: Sequence[float]) -> str:
    low, high = min(values, default=0), max(values, default=0)
    span = high - low or 1
    step = _WIDTH / max(1, len(values) - 1)
    points = " L".join(
        f"{place * step:.1f},{_HEIGHT * (1 - (value - low) / span):.1f}" for place, value in enumerate(values)
    )
    drawn = f'<svg viewBox="-2 -4 {_WIDTH + 4} {_HEIGHT + 8}" width="{_WIDTH}"><path d="M{points}"/></svg>'
    return f"<p>{low:.1f} to {high:.1f}</p>{drawn}"
