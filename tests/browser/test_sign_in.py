"""Sign-in at an OAuth-protected server in a real browser."""

import pytest

from tests.browser.accessibility import find_violations
from tests.browser.window import Window
from tests.integration.oauth import sites
from tests.integration.oauth_home import Home, add
from tests.waiting import wait_until_async


@pytest.fixture
def places(monkeypatch):
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with sites() as found:
        found[0].has_page = True
        yield found


@pytest.fixture
def home(places, tmp_path):
    return Home(tmp_path, *places[1:])


async def test_login_opens_the_page_and_a_click_there_signs_in(home, browser: Window):
    opened, program = home.directory / "opened", home.directory / "program"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new && mv {opened}.new {opened}\n')
    program.chmod(0o700)
    with home.logging_in(BROWSER=f"{program} %s") as (_, url):
        await wait_until_async(opened.exists)
        assert opened.read_text() == url
        browser.open(url)
        browser.click("button")
        browser.until(lambda: "Signed in. You can close this page" in browser.text(), "the sign-in ends")
        assert find_violations(browser) == []
    async with home.client() as client:
        assert await add(client) == "2"
