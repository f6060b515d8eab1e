"""The site of the documents, in a browser."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.browser.accessibility import find_violations
from tests.browser.window import Window
from tests.documents.site import built


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that is overridden
        """Nothing is said of a page that was fetched."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = built(tmp_path_factory)
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_start_page_and_configuration_reference_are_accessible(stranger: Window, address: str, scheme: str) -> None:
    stranger.prefer(scheme)
    for page in ("index", "reference/configuration"):
        stranger.open(f"http://{address}/{page}.html")
        assert find_violations(stranger, scheme) == [], page


def test_reading_and_searching_the_site_asks_no_other_host(stranger: Window, address: str) -> None:
    for page in ("index", "how-it-predicts", "reference/configuration"):
        stranger.open(f"http://{address}/{page}.html")
    stranger.find("[data-md-component=search-query]")
    stranger.run("document.querySelector('[data-md-component=search-query]').focus()")
    stranger.press(*"spool")
    stranger.until(
        lambda: (
            "spool" in stranger.run("return document.querySelector('.md-search-result__list').innerText.toLowerCase()")
        ),
        "the search finds what is written",
    )
    assert stranger.rate_limited_log() == []
    assert stranger.hosts() == {address}
