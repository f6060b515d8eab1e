"""One browser and one riglm for all tests of the dashboard."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.browser.served import WRITE_TOKEN, Served, served
from tests.browser.window import NoBrowser, Window, window


@pytest.fixture(scope="session")
def riglm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as found:
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
def page(browser: Window, riglm: Served) -> Iterator[Window]:
    """A window that has the token for changes, of the size of a small screen; nothing was complained about yet."""
    browser.prefer("light")
    browser.size(1280, 800)
    browser.open(f"{riglm.control}/assets/icon.svg")
    browser.run("sessionStorage.setItem('riglm.token', arguments[0]); localStorage.clear()", WRITE_TOKEN)
    browser.complaints()
    browser.hosts()
    yield browser
    browser.online(True)
