"""The pictures of the dashboard in the documentation, from a real riglm in front of real servers and clients.

    python -m benchmarks.control screenshots [--into docs/images]
    python -m benchmarks.control screenshots --every DIRECTORY

With `--every`, each view is taken at three widths, in light and dark, on an empty, a new and a full store.
"""

import argparse
import asyncio
import io
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mcp import Client
from mcp.types import Implementation
from PIL import Image
from tests.browser.window import Window, window
from tests.unit.application.reports.shadowed import worked

from benchmarks.control.started import Started, started
from benchmarks.control.usage import CLIENTS, ERRANDS, a_day, configuration
from riglm.adapters.analytics.sql import SqlAnalytics

_IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
_COLORS: Final = 240
_MAX_BYTES: Final = 200_000
_TIMEOUT_SECONDS: Final = 120.0
_ROUNDS: Final = 2
_WIDTHS: Final = (390, 1280, 1920)
_TOOL: Final = "github__create_pull_request"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of one view; `words` are on the page when it is complete."""

    name: str
    address: str
    words: str
    scheme: str = "light"
    width: int = 1280
    height: int = 1100


def main(arguments: list[str]) -> int:
    """Take the pictures."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.control screenshots",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--into", type=Path, default=_IMAGES, metavar="DIRECTORY")
    options.add_argument("--every", type=Path, metavar="DIRECTORY", help="take every view, width and scheme instead")
    chosen = options.parse_args(arguments)
    into: Path = chosen.every or chosen.into
    into.mkdir(parents=True, exist_ok=True)
    is_every = chosen.every is not None
    with tempfile.TemporaryDirectory(prefix="riglm-pictures-") as place, window() as browser:
        for part, take in (("new", _take_new), ("full", _take_full), ("report", _take_report)):
            directory = Path(place) / part
            (directory / "data").mkdir(parents=True)
            take(directory, _Camera(browser, into, is_every))
    return 0


@dataclass(frozen=True, slots=True)
class _Camera:
    """Takes pictures into a directory; with `is_every`, of all widths and schemes and without a size limit."""

    browser: Window
    into: Path
    is_every: bool

    def take(self, url: str, pictures: Sequence[Picture], views: Sequence[Picture] = ()) -> None:
        """Take the pictures for the documentation, or with `is_every` the views at all widths and schemes."""
        if not self.is_every:
            for picture in pictures:
                self._take(url, picture)
            return
        for view, width, scheme in itertools.product(views, _WIDTHS, ("light", "dark")):
            self._take(url, replace(view, name=f"{view.name}-{width}-{scheme}", width=width, scheme=scheme))

    def _take(self, url: str, picture: Picture) -> None:
        browser = self.browser
        browser.prefer(picture.scheme)
        browser.command("Emulation.setScrollbarsHidden", hidden=True)
        browser.size(picture.width, picture.height)
        browser.open(url + picture.address)
        browser.until(lambda: picture.words in browser.text(), f"the page shows {picture.words!r}")
        if browser.run("return document.getElementById('nav') !== null"):
            browser.next_turn()
            browser.next_turn()
        browser.until(lambda: browser.run(_IS_DRAWN), "the charts are drawn")
        file = self.into / f"{picture.name}.png"
        file.write_bytes(_small(browser.driver.get_screenshot_as_png()))
        size = file.stat().st_size
        print(f"{file.name}: {size / 1000:.0f} kB")
        if size > _MAX_BYTES and not self.is_every:
            raise SystemExit(f"{file.name} is larger than {_MAX_BYTES / 1000:.0f} kB")


def _take_new(directory: Path, camera: _Camera) -> None:
    """Take the dashboard before the first client, and after its first session."""
    with started(directory, configuration(directory)) as riglm:
        camera.take(riglm.control, (), (Picture("empty-overview", "/#/", "no session is recorded"),))
        asyncio.run(_first_session(riglm))
        camera.take(riglm.control, (), (Picture("new-overview", "/#/", "No verdict yet: it takes", height=2000),))


async def _first_session(riglm: Started) -> None:
    words, tools = next(iter(ERRANDS.items()))
    async with _client(riglm, 0) as client:
        await _work(client, words, tools)


def _take_full(directory: Path, camera: _Camera) -> None:
    """Take the dashboard after a day of use, with live sessions."""
    with SqlAnalytics(f"sqlite:///{directory / 'data' / 'riglm.db'}") as store:
        store.record_many(list(a_day(time.time())))
    with started(directory, configuration(directory)) as riglm:
        asyncio.run(_search(riglm))
        _until_learned(riglm)
        asyncio.run(_take_live(riglm, camera))


async def _take_live(riglm: Started, camera: _Camera) -> None:
    """Let clients work until riglm has learned from them, and take the pictures while the last ones are connected."""
    for _ in range(_ROUNDS):
        for words, tools in ERRANDS.items():
            async with _client(riglm, 0) as client:
                await _work(client, words, tools)
    async with AsyncExitStack() as stack:
        for number, (words, tools) in enumerate(ERRANDS.items()):
            client = await stack.enter_async_context(_client(riglm, number))
            await _work(client, words, tools[: 4 - number % 3])
        session = riglm.ask("/sessions?active=true&limit=100")["items"][-1]["id"]
        prediction = Picture("prediction", f"/#/session/{session}", "Without each signal")
        clusters = Picture("clusters", "/#/clusters", "most distinctive tools", height=800)
        overview = Picture("dashboard", "/#/", "Tools used most", height=1320)
        camera.take(
            riglm.control,
            (overview, prediction, clusters),
            (
                replace(overview, height=2400),
                replace(prediction, height=2400),
                clusters,
                Picture("tool", f"/#/tools/{_TOOL}", "Used together with", height=800),
                Picture("together", "/#/together", "Pairs", height=800),
                Picture("tools", "/#/tools", "Last used"),
                Picture("sessions", "/#/sessions", "Newest first"),
                Picture("overrides", "/#/overrides", "In force"),
            ),
        )


def _take_report(directory: Path, camera: _Camera) -> None:
    """Take the page of `riglm report --html`."""
    with SqlAnalytics(f"sqlite:///{directory / 'data' / 'riglm.db'}") as store:
        store.record_many(worked(100))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
    command = [sys.executable, "-m", "riglm", "report", "--html", str(directory / "report.html")]
    subprocess.run(
        command,
        env={**kept, "RIGLM_DATA_DIR": str(directory / "data")},
        cwd=directory,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    report = Picture("report", "/report.html", "riglm report", width=1000, height=1300)
    camera.take(f"file://{directory}", (report,), (replace(report, height=2400),))


def _client(riglm: Started, number: int) -> Client:
    name, version = CLIENTS[number % len(CLIENTS)]
    return Client(
        riglm.mcp,
        mode="legacy",
        read_timeout_seconds=_TIMEOUT_SECONDS,
        client_info=Implementation(name=name, version=version),
    )


async def _search(riglm: Started) -> None:
    """Search once: this loads the model."""
    async with _client(riglm, 0) as client:
        await client.list_tools(cache_mode="refresh")
        await client.call_tool("search_available_tools", {"query": "open a pull request"})


def _until_learned(riglm: Started) -> None:
    """Wait until the past is learned and the embedder is ready, so that lists go by them."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while riglm.ask("/embedder")["embeddings"]["status"] != "ready":
        if time.monotonic() > deadline:
            raise SystemExit("the embedder is not ready")
        time.sleep(0.2)


async def _work(client: Client, words: str, tools: Sequence[str]) -> None:
    await client.list_tools(cache_mode="refresh")
    await client.call_tool("set_context", {"context": words})
    await client.list_tools(cache_mode="refresh")
    for tool in tools:
        await client.call_tool(tool, {})
    await client.list_tools(cache_mode="refresh")


_IS_DRAWN: Final = "return [...document.querySelectorAll('.chart')].every((place) => place.querySelector('canvas'))"


def _small(picture: bytes) -> bytes:
    """The same in a palette of few colours, which is a third of the bytes."""
    reduced = Image.open(io.BytesIO(picture)).convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
    written = io.BytesIO()
    reduced.save(written, "PNG", optimize=True)
    return written.getvalue()
