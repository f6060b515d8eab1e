"""One browser and one riglm for all tests of the dashboard."""

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.browser.served import WRITE_TOKEN, Served, a_past, served
from tests.browser.window import NoBrowser, Window, window


@pytest.fixture(scope="session")
def riglm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served"), list(a_past(time.time()))) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Window]:
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(window())
        except NoBrowser as reason:
            pytest.fail(str(reason))
        yield found


@pytest.fixture
def stranger(browser: Window) -> Iterator[Window]:
    """A window of the size of a small screen, in which no choice is kept; nothing was complained about yet."""
    browser.prefer("light")
    browser.size(1280, 800)
    browser.rate_limited_log()
    browser.hosts()
    yield browser
    browser.online(True)
    browser.run("localStorage.clear(); sessionStorage.clear()")
    browser.driver.get("about:blank")


@pytest.fixture
def page(stranger: Window) -> Iterator[Window]:
    """The same with the token for changes."""
    with stranger.begin_with(f"if (origin !== 'null') sessionStorage.setItem('riglm.token', '{WRITE_TOKEN}')"):
        yield stranger
