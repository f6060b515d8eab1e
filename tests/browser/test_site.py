"""The site of the documents, in a browser: from a disk, and from a server."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.accessibility import find_violations
from tests.browser.window import Window
from tests.documents.site import built

_WIDTH = 390
_WIDE = ("index", "comparison", "reference/configuration", "reference/commands", "reference/control-api",
         "discussions/retrieval", "how-to/price", "how-to/many-processes")  # fmt: skip
"""The pages with the widest tables, code and headings, and the first one."""

_FOUND = "return document.querySelector('.md-search-result__list').innerText.toLowerCase()"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that is overridden
        """Write no log."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory)


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_with_pictures_tables_and_code_are_accessible(stranger: Window, site: Path, scheme: str) -> None:
    stranger.prefer(scheme)
    for page in ("index.html", "reference/configuration.html", "comparison.html", "how-to/clients.html"):
        stranger.open((site / page).as_uri())
        assert find_violations(stranger, scheme) == [], page


def read_and_search(window: Window, address: str) -> None:
    for page in ("index", "how-it-predicts", "reference/configuration"):
        window.open(f"{address}/{page}.html")
    window.find("[data-md-component=search-query]")
    window.run("document.querySelector('[data-md-component=search-query]').focus()")
    window.press(*"filtering.max_tools")
    window.until(lambda: "filtering.max_tools" in window.run(_FOUND), "the search finds a key of the configuration")
    assert window.rate_limited_log() == []


def test_reading_and_searching_the_site_from_a_disk_asks_no_host(stranger: Window, site: Path) -> None:
    read_and_search(stranger, site.as_uri())
    assert stranger.hosts() == set()


def test_reading_and_searching_the_site_asks_no_other_host(stranger: Window, server: str) -> None:
    read_and_search(stranger, f"http://{server}")
    assert stranger.hosts() == {server}


@pytest.mark.parametrize("page", _WIDE)
def test_a_page_is_no_wider_than_a_phone(stranger: Window, site: Path, page: str) -> None:
    stranger.size(_WIDTH, 844)
    stranger.open((site / page).with_suffix(".html").as_uri())
    assert stranger.run("return document.documentElement.scrollWidth") <= _WIDTH
