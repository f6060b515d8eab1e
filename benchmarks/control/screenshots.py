"""The pictures of the dashboard in the documentation, from a real riglm in front of real servers and clients.

python -m benchmarks.control screenshots [--into docs/images]
"""

import argparse
import asyncio
import io
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcp import Client
from mcp.types import Implementation
from PIL import Image
from tests.browser.window import Window, window

from benchmarks.control.started import Started, started
from benchmarks.control.usage import CLIENTS, ERRANDS, a_day, configuration
from riglm.adapters.analytics.sql import SqlAnalytics

_IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
_COLOURS: Final = 240
_MOST_BYTES: Final = 200_000
_PATIENCE_SECONDS: Final = 120.0
_LESSONS: Final = 2


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: of which address, in which scheme and size, and words that are there when it can be taken."""

    name: str
    address: str
    words: str
    scheme: str = "light"
    width: int = 1360
    height: int = 1100


def main(arguments: list[str]) -> int:
    """Make them."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.control screenshots",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--into", type=Path, default=_IMAGES, metavar="DIRECTORY")
    into: Path = options.parse_args(arguments).into
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="riglm-pictures-") as place:
        directory = Path(place)
        (directory / "data").mkdir()
        with SqlAnalytics(f"sqlite:///{directory / 'data' / 'riglm.db'}") as store:
            store.record_many(list(a_day(time.time())))
        with started(directory, configuration(directory)) as riglm, window() as browser:
            asyncio.run(_search(riglm))
            _until_learned(riglm)
            asyncio.run(_take_all(riglm, browser, into))
    return 0


async def _take_all(riglm: Started, browser: Window, into: Path) -> None:
    """Let clients work until riglm has learned what for, and take the pictures while the last ones are at it."""
    for _ in range(_LESSONS):
        for words, tools in ERRANDS.items():
            async with _client(riglm, 0) as client:
                await _work(client, words, tools)
    async with AsyncExitStack() as stack:
        for number, (words, tools) in enumerate(ERRANDS.items()):
            client = await stack.enter_async_context(_client(riglm, number))
            await _work(client, words, tools[: 4 - number % 3])
        session = riglm.ask("/sessions?active=true&limit=100")["items"][-1]["id"]
        for picture in (
            Picture("dashboard", "#/", "Tools used most", height=1320),
            Picture("dashboard-dark", "#/", "Tools used most", scheme="dark", height=900),
            Picture("prediction", f"#/session/{session}", "Without each signal"),
            Picture("together", "#/together", "Pairs", height=800),
        ):
            _take(browser, riglm, picture, into)


def _client(riglm: Started, number: int) -> Client:
    name, version = CLIENTS[number % len(CLIENTS)]
    return Client(
        riglm.mcp,
        mode="legacy",
        read_timeout_seconds=_PATIENCE_SECONDS,
        client_info=Implementation(name=name, version=version),
    )


async def _search(riglm: Started) -> None:
    """Search once: this loads the model."""
    async with _client(riglm, 0) as client:
        await client.list_tools(cache_mode="refresh")
        await client.call_tool("search_available_tools", {"query": "open a pull request"})


def _until_learned(riglm: Started) -> None:
    """Wait until the past is learned and the embedder is ready, so that lists go by them."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
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


def _take(browser: Window, riglm: Started, picture: Picture, into: Path) -> None:
    browser.prefer(picture.scheme)
    browser.command("Emulation.setScrollbarsHidden", hidden=True)
    browser.size(picture.width, picture.height)
    browser.open(f"{riglm.control}/{picture.address}")
    browser.says(picture.words)
    browser.next_turn()
    browser.until(lambda: browser.run(_IS_DRAWN), "the charts are drawn")
    file = into / f"{picture.name}.png"
    file.write_bytes(_small(browser.driver.get_screenshot_as_png()))
    size = file.stat().st_size
    print(f"{file.name}: {size / 1000:.0f} kB")
    if size > _MOST_BYTES:
        raise SystemExit(f"{file.name} is larger than {_MOST_BYTES / 1000:.0f} kB")


_IS_DRAWN: Final = "return [...document.querySelectorAll('.chart')].every((place) => place.querySelector('canvas'))"


def _small(picture: bytes) -> bytes:
    """The same in a palette of few colours, which is a third of the bytes."""
    reduced = Image.open(io.BytesIO(picture)).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    written = io.BytesIO()
    reduced.save(written, "PNG", optimize=True)
    return written.getvalue()
