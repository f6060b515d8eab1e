"""How soon the dashboard is there, in a real Chromium, over a store with 100,000 invocations.

    python -m benchmarks.control page [--rounds 5] [--calls 100000] [--json]

Counts from the beginning of the navigation until all panels of a view hold what they show, and until its charts are
drawn. riglm has begun its work by then: each question was asked once. In the first round the browser has nothing in its
cache. Exit code 1 if a view takes a second or more.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from tests.browser.window import Window, window

from benchmarks.control.started import Started, started
from benchmarks.store_filling import TOOLS, Shape, fill
from riglm.adapters.analytics.sql import SqlAnalytics

_GOAL_MS: Final = 1_000.0
_DAYS: Final = 30.0
_LISTING: Final = Path(__file__).parents[2] / "tests" / "integration" / "listing_server.py"

_WATCH: Final = """
const look = () => {
  const main = document.getElementById("main");
  if (!main?.querySelector(".number") || main.querySelector(".missing")) return;
  window.contentAt ??= performance.now();
  const places = [...main.querySelectorAll(".chart")];
  if (places.every((place) => place.querySelector("canvas"))) window.drawnAt ??= performance.now();
};
new MutationObserver(look).observe(document, { childList: true, subtree: true });
"""


def main(arguments: list[str]) -> int:
    """Measure, and print a table."""
    chosen = _options(arguments)
    console = Console(stderr=chosen.json)
    with tempfile.TemporaryDirectory(prefix="riglm-page-") as place:
        directory = Path(place)
        _fill(directory, chosen.calls, console)
        tools = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        (directory / "tools.json").write_text(json.dumps(tools))
        command = ["--", sys.executable, str(_LISTING), str(directory / "tools.json")]
        with started(directory, command, {"RIGLM_EMBEDDER__PROVIDER": "static"}) as riglm, window() as browser:
            found = _measure(browser, riglm, chosen.rounds)
    if chosen.json:
        print(json.dumps(found))
    else:
        _show(found, console)
    return 0 if all(max(times["content_ms"]) < _GOAL_MS for times in found.values()) else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.control page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--calls", type=int, default=100_000, help="invocations in the store")
    options.add_argument("--json", action="store_true", help="print JSON only")
    return options.parse_args(arguments)


def _fill(directory: Path, calls: int, console: Console) -> None:
    data = directory / "data"
    data.mkdir()
    shape = Shape()
    rows = calls * shape.records // shape.calls
    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        fill(store, rows, shape=shape, first=time.time() - _DAYS * 86_400, days=_DAYS, console=console)


def _measure(browser: Window, riglm: Started, rounds: int) -> dict[str, dict[str, list[float]]]:
    """The times of each view, in milliseconds, the first round first."""
    session = riglm.ask("/sessions?limit=1")["items"][0]["id"]
    views = {
        "overview": "#/",
        "sessions": "#/sessions",
        "one session": f"#/session/{session}",
        "tools": "#/tools",
        "one tool": f"#/tools/{TOOLS[0]}",
        "together": "#/together",
        "kinds of work": "#/clusters",
    }
    for path in (
        "/health",
        "/stats/summary",
        "/stats/series",
        "/tools",
        "/stats/cooccurrence",
        "/stats/clusters",
        f"/tools/{TOOLS[0]}/stats",
    ):
        riglm.ask(path)
    browser.command("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
    browser.command("Network.enable")
    found: dict[str, dict[str, list[float]]] = {name: {"content_ms": [], "drawn_ms": []} for name in views}
    for number in range(rounds):
        for name, address in views.items():
            if number == 0:
                browser.command("Network.clearBrowserCache")
            browser.open(f"{riglm.control}/{address}")
            times = browser.until(lambda: _times(browser), f"the view {name}")
            for kind, value in times.items():
                found[name][kind].append(round(value, 1))
    return found


def _times(browser: Window) -> dict[str, float] | None:
    content, drawn = browser.run("return [window.contentAt, window.drawnAt]")
    return None if content is None or drawn is None else {"content_ms": content, "drawn_ms": drawn}


def _show(found: dict[str, dict[str, list[float]]], console: Console) -> None:
    table = Table(title="from the navigation until it is there (ms)")
    for head in ("view", "content, first", "median", "slowest", "charts, first", "median"):
        table.add_column(head, justify="left" if head == "view" else "right")
    for name, times in found.items():
        content, drawn = times["content_ms"], times["drawn_ms"]
        cells: list[Any] = [content[0], statistics.median(content), max(content), drawn[0], statistics.median(drawn)]
        table.add_row(name, *(f"{cell:.0f}" for cell in cells))
    console.print(table)
