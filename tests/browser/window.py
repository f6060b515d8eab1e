"""A window of a real Chromium on the dashboard."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.started import die_with_the_starter
from tests.waiting import WAIT_SECONDS, wait_until

PATIENCE_SECONDS: Final = WAIT_SECONDS
_PROGRAMS: Final = ("chromium", "chromedriver")
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",  # the browser ends when its driver does
)


_SAYS: Final = """
const turns = Number(document.getElementById("main")?.dataset.turns ?? 0);
return turns > 0 && document.body.innerText.includes(arguments[0]);
"""


class NoBrowser(Exception):
    """Chromium or its driver is not there; the message says what to type."""


class Window:
    """One window. Whatever is waited for has to come within `PATIENCE_SECONDS`."""

    def __init__(self, driver: Chrome) -> None:
        self.driver: Final = driver

    def open(self, url: str) -> None:
        """Load a page anew."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function with this body returns."""
        return self.driver.execute_script(script, *arguments)

    def turns(self) -> int:
        """How often what is seen was asked for, since the page was loaded."""
        return int(self.run("return Number(document.getElementById('main')?.dataset.turns ?? 0)"))

    def next_turn(self) -> None:
        """Let the page ask now for what it shows, as when somebody comes back to it, and wait until it has drawn it."""
        wanted = self.turns() + 1
        self.run("document.dispatchEvent(new Event('visibilitychange'))")
        self.until(lambda: self.turns() >= wanted, "the page asks again")

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait for something; what it came to.

        Raises:
            AssertionError: it did not come.
        """
        try:
            return wait_until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the page says: {self.text()[:2000]}") from None

    def find(self, selector: str) -> WebElement:
        """The first element like this, once there is one."""
        found: WebElement = self.until(
            lambda: self.run("return document.querySelector(arguments[0])", selector), f"there is {selector}"
        )
        return found

    def click(self, selector: str) -> None:
        """Click on the first element like this, once there is one."""
        self.find(selector)
        self.run("document.querySelector(arguments[0]).click()", selector)

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.run("return document.body?.innerText ?? ''"))

    def says(self, words: str) -> None:
        """Wait until the page has been answered all that it asked, and says this."""
        self.until(lambda: self.run(_SAYS, words), f"the page says {words!r}")

    def sources(self) -> dict[str, str]:
        """What the page asked for last, by name."""
        found: dict[str, str] = json.loads(
            self.until(lambda: self.run("return document.getElementById('main')?.dataset.sources"), "it asked")
        )
        return found

    def numbers(self) -> dict[str, str]:
        """Every number on the page, by the place in the answers that it comes from."""
        found: dict[str, str] = self.run(
            "return Object.fromEntries([...document.querySelectorAll('[data-field]')]"
            ".map((one) => [one.dataset.field, one.dataset.value]))"
        )
        return found

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, selector: str, most: int = 80) -> None:
        """Press Tab until the focus is on an element like this.

        Raises:
            AssertionError: it is not reached by so many.
        """
        for _ in range(most):
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
            self.press(Keys.TAB)
        raise AssertionError(f"{selector} is not reached by {most} times Tab")

    def command(self, name: str, **parameters: Any) -> Any:
        """Tell the browser something in its own protocol; what it answers."""
        return self.driver.execute_cdp_cmd(name, parameters)

    @contextlib.contextmanager
    def begin_with(self, script: str) -> Iterator[None]:
        """Let each page run this before anything of its own."""
        made = self.command("Page.addScriptToEvaluateOnNewDocument", source=script)
        yield
        self.command("Page.removeScriptToEvaluateOnNewDocument", **made)

    def prefer(self, scheme: str) -> None:
        """Let the reader's system be `light` or `dark`."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def size(self, width: int, height: int) -> None:
        """Let the page have so many pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def online(self, is_so: bool) -> None:
        """Cut the network, or let it work again."""
        self.command("Network.enable")
        self.command(
            "Network.emulateNetworkConditions", offline=not is_so, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    def rate_limited_log(self) -> list[str]:
        """What the browser complained about since this was asked last."""
        said: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(each["message"]) for each in said if each["level"] in {"SEVERE", "WARNING"}]

    def hosts(self) -> set[str]:
        """The hosts that were asked for anything since this was asked last."""
        said: list[dict[str, Any]] = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        events = (json.loads(each["message"])["message"] for each in said)
        urls = (each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent")
        return {urlsplit(url).netloc for url in urls if url.startswith(("http", "ws"))}


@contextlib.contextmanager
def window() -> Iterator[Window]:
    """A window of a browser of its own.

    Raises:
        NoBrowser: there is none.
    """
    browser, driver = (shutil.which(program) for program in _PROGRAMS)
    if browser is None or driver is None:
        raise NoBrowser("Chromium and its driver are not there; as root: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory(prefix="riglm-browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = browser
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        chrome = Chrome(options=options, service=Service(driver, popen_kw={"preexec_fn": die_with_the_starter}))
        chrome.set_script_timeout(PATIENCE_SECONDS)
        try:
            yield Window(chrome)
        finally:
            chrome.quit()
