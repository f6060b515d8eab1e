"""Sessions that teach, and at some points sessions on a copy of the store that only measure."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cache import import_path
from benchmarks.learning_curve.agent import Agent, Count, Surface
from benchmarks.learning_curve.workflows import TOOLS, Workflows
from benchmarks.subject import RIGLM, Served

SETTINGS: Final[dict[Surface, dict[str, str]]] = {
    # A client with room for 15 tools says so; the search stands in for the rest while nothing is known.
    "dynamic": {"RIGLM_FILTERING__MAX_TOOLS": "15", "RIGLM_FILTERING__COLD_START_LIMIT": "15"},
    # 15 in all: 5 in the list and 10 in the answer to a context. An epoch of a second makes every session the first
    # of an epoch, as the sessions of 100 days would be.
    "stable": {
        "RIGLM_FILTERING__MAX_TOOLS": "5",
        "RIGLM_FILTERING__ANSWER_TOOLS": "10",
        "RIGLM_FILTERING__EPOCH": "1",
    },
}


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured after so many sessions."""

    surface: Surface
    sessions: int
    count: Count


@contextmanager
def riglm(directory: Path, surface: Surface) -> Iterator[str]:
    """The URL of a riglm that keeps its data in `directory`."""
    upstream = ["--", sys.executable, "-m", "benchmarks.load.upstream", "stdio", str(TOOLS)]
    (directory / "riglm.log").unlink(missing_ok=True)  # or an earlier run's port would be read
    served = Served(RIGLM, upstream, directory, arguments=(), PYTHONPATH=import_path(), **SETTINGS[surface])
    try:
        yield f"http://127.0.0.1:{served.port}/mcp"
    finally:
        served.process.stop()


async def curve(surface: Surface, points: Sequence[int], rounds: int, directory: Path) -> list[Point]:
    """Teach, and measure whenever so many sessions were taught.

    The first point, 0, is the control: the same measured sessions by a riglm that has never seen a call.
    """
    workflows, store, taught, found = Workflows(), directory / surface, 0, []
    store.mkdir(parents=True)
    lessons = list(workflows.taught(max(points)))
    for sessions in points:
        if sessions > taught:
            with riglm(store, surface) as url:
                for work in lessons[taught:sessions]:
                    await Agent(url, surface).work(work)
            taught = sessions
        total = Count()
        for number, work in enumerate(workflows.measured(rounds)):
            copy = directory / f"{surface}-{sessions}-{number}"
            shutil.copytree(store, copy)
            with riglm(copy, surface) as url:
                total += await Agent(url, surface).work(work)
        found.append(Point(surface, sessions, total))
    return found
