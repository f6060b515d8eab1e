"""The site is built strictly from what is in docs/, and no page of it asks another host for anything."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.documents.page import PAGES, ROOT
from tests.documents.site import built

_LOADED = {"src", "srcset", "poster", "data", "action", "formaction"}
_ELSEWHERE = re.compile(r"(?:https?:)?//[\w.]+")


class Loads(HTMLParser):
    """Collects what a browser fetches for a page by itself: not where links lead, if somebody follows them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: list[str] = []
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        self.places += [value or "" for name, value in attrs if name in _LOADED or (tag == "link" and name == "href")]
        self.places += [place for name, value in attrs if name == "style" for place in in_style(value or "")]

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.places += in_style(data)


def in_style(text: str) -> Iterator[str]:
    yield from re.findall(r"""(?:url\(\s*|@import\s+)["']?([^"')]+)""", text)


def from_elsewhere(text: str, *, style: bool = False) -> list[str]:
    places = in_style(text) if style else Loads(text).places
    return [place for place in places if _ELSEWHERE.match(place.strip())]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory)


def test_every_page_of_docs_is_in_the_site_and_found_by_its_search(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs") for page in PAGES if (ROOT / "docs") in page.parents]
    assert [page for page in pages if not (site / page).with_suffix(".html").exists()] == []
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {page.with_suffix(".html").as_posix() for page in pages} <= places


def test_no_page_asks_another_host(site: Path) -> None:
    pages, styles = [*site.rglob("*.html")], [*site.rglob("*.css")]
    assert len(pages) > 20
    assert len(styles) > 1
    asked = {page.name: from_elsewhere(page.read_text("utf-8")) for page in pages}
    asked |= {sheet.name: from_elsewhere(sheet.read_text("utf-8"), style=True) for sheet in styles}
    assert {name: places for name, places in asked.items() if places} == {}


def test_no_page_has_what_the_theme_would_fetch_a_script_for(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"""class=["']?[^"'>]*\b(mermaid|md-version)\b""", page.read_text("utf-8")), page


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        "<style>@import 'https://fonts.example/css'</style>",
        '<p style="background: url(http://example.org/x.png)">',
    ],
)
def test_what_would_ask_another_host_is_found(text: str) -> None:
    assert from_elsewhere(text)
    assert not from_elsewhere('<a href="https://example.org/">there</a><img src="images/a.png">')


def test_the_figures_say_what_the_tables_say() -> None:
    script = ROOT / "docs" / "reference" / "generate_figures.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
