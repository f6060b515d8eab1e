"""The dashboard as people see it: in a real browser, on a real riglm, with a real client in front of it."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from mcp import Client
from selenium.webdriver.common.keys import Keys

from tests.browser.accessibility import find_violations
from tests.browser.served import HOSTILE, READ_TOKEN, TOOLS, WRITE_TOKEN, Served
from tests.browser.window import Window


async def listed(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]


def views(riglm: Served) -> dict[str, str]:
    """The address of each view, and a word that it says when it is there."""
    session = riglm.ask("/sessions?limit=1")["items"][0]["id"]
    return {
        "#/": "Tools used most",
        "#/sessions": "Newest first",
        f"#/session/{session}": "Without each signal",
        "#/tools": "Last used",
        f"#/tools/{quote(TOOLS[0], safe='')}": "Used together with",
        "#/together": "Pairs",
        "#/clusters": "most distinctive tools",
        "#/overrides": "In force",
        "#/changes": "To review",
    }


_TURNS = 5


def differences(page: Window, riglm: Served) -> list[str]:
    """The numbers on the page that are not those of the API."""
    answers = {name: riglm.ask(path) for name, path in page.sources().items()}
    shown = page.numbers()
    return [f"{place}: {value}" for place, value in shown.items() if not _is(answers, place, value)]


def _is(answers: dict[str, Any], place: str, value: str) -> bool:
    source, _, pointer = place.partition("#")
    found = answers[source]
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except LookupError:  # the page has just asked for a shorter span
            return False
    assert isinstance(found, int | float | None), place
    return json.loads(value) == pytest.approx(found, abs=0) if found is not None else value == "null"


def test_every_view_has_the_apis_numbers_fits_the_window_and_is_accessible_without_a_complaint(page, riglm):
    counts = {}
    for address, word in views(riglm).items():
        page.size(360, 740)
        page.open(f"{riglm.control}/{address}")
        page.says(word)
        for _ in range(_TURNS):  # what was asked for a moment ago may have been a different state
            found = differences(page, riglm)
            if not found:
                break
            page.next_turn()
        assert found == [], address
        counts[address] = len(page.numbers())
        for width in (360, 390, 1280):
            page.size(width, 740)
            page.until(lambda: page.run(_WIDTH) <= width, f"{address} fits {width} pixels")  # noqa: B023
            assert page.run(_CUT_OFF) == [], (address, width)
        page.run(_ALL_SHADES)
        assert find_violations(page) == [], address
    assert sum(counts.values()) > 500, counts
    assert min(counts.values()) == counts["#/overrides"] == 0, counts
    page.open(f"{riglm.control}/")
    page.find("#chart-found canvas")
    assert page.rate_limited_log() == []
    assert page.hosts() == {riglm.control.removeprefix("http://")}


_WIDTH = "return document.documentElement.scrollWidth"


_CUT_OFF = """
const buttons = [...document.querySelectorAll("main .action button")];
return buttons.filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.dataset.tool);
"""


_ALL_SHADES = """
for (const [index, field] of document.querySelectorAll(".map td:has(.number)").entries()) {
  field.className = `shade-${index % 6}`;
}
"""


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_the_switch_counts_whatever_the_reader_s_system_prefers(page, riglm, scheme, other):
    page.prefer(scheme)
    page.open(f"{riglm.control}/")
    page.says("Tools used most")
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    page.run("const theme = document.getElementById('theme'); theme.value = arguments[0];"
             "theme.dispatchEvent(new Event('change'))", other)  # fmt: skip
    assert page.run("return getComputedStyle(document.body).backgroundColor") != ground


async def test_calls_appear_while_they_run(page, riglm):
    page.open(f"{riglm.control}/")
    page.says("Tools used most")
    before = int(page.numbers()["summary#/calls"])
    async with riglm.client() as client:
        for tool in TOOLS[:3]:
            await client.call_tool(tool, {})
        page.until(lambda: int(page.numbers()["summary#/calls"]) >= before + 3, "three calls more")
        page.until(lambda: int(page.numbers()["summary#/sessions/active"]) >= 1, "a live session")
    assert page.rate_limited_log() == []


def test_sessions_have_their_project_beside_the_client_where_there_are_several(page, riglm):
    page.open(f"{riglm.control}/#/sessions")
    page.says("project aaaaaa")
    page.says("project bbbbbb")
    page.click("[data-action=only-live]")
    page.until(lambda: "project" not in page.run("return document.querySelector('main').innerText"), "none is live")
    page.click("[data-action=only-live]")


async def test_an_override_by_a_button_changes_the_next_list(page, riglm):
    async with riglm.client() as client:
        tool = next(name for name in await listed(client) if name in TOOLS)
        page.open(f"{riglm.control}/#/sessions")
        page.click("tbody th a")
        page.says("Its next list")
        page.until(lambda: page.run(_CLICK_OVERRIDE, tool), f"a button for {tool}")
        page.click("dialog [name=kind][value=exclude]")
        page.click("dialog .main-button")
        page.until(lambda: f"{tool} is excluded for a session" in page.run(_SPOKEN), "it is said aloud")
        assert tool not in await listed(client)
        page.until(lambda: page.run(_ROW, tool) and "never" in page.run(_ROW, tool), "the row says so")
        page.open(f"{riglm.control}/#/overrides")
        page.click("[data-action=delete-override]")
        page.says("No override is in force")
        assert tool in await listed(client)
    assert page.rate_limited_log() == []


_BUTTON = """
const buttons = [...document.querySelectorAll("[data-action=override]")];
const button = buttons.find((one) => one.dataset.tool === arguments[0]);
"""
_CLICK_OVERRIDE = f"""
{_BUTTON}
button ? button.click() : document.querySelector("[data-action=whole]")?.click();
return button !== undefined;
"""
_ROW = f"""
{_BUTTON}
return button?.closest("tr").innerText;
"""
_SPOKEN = "return document.getElementById('spoken').textContent"


def test_a_tool_is_pinned_by_keyboard_alone(page, riglm):
    page.open(f"{riglm.control}/")
    page.says("Tools used most")
    page.tab_to(".skip")
    page.press(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "main"
    page.open(f"{riglm.control}/")
    page.tab_to("nav a[href='#/tools']")
    page.press(Keys.ENTER)
    page.says("Last used")
    page.tab_to("[data-action=find]")
    page.press("share_note")
    page.until(lambda: page.run("return document.querySelectorAll('tbody tr').length") == 1, "one tool is left")
    page.tab_to("[data-action=override][data-tool=share_note]")
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press(Keys.ENTER)
    page.tab_to("dialog [value=pin]")
    page.tab_to("dialog .main-button")
    page.press(Keys.ENTER)
    page.until(lambda: "share_note is pinned" in page.run(_SPOKEN), "it is said aloud")
    assert page.run("return document.activeElement.dataset.tool") == "share_note", "the focus is where it was"
    pinned = riglm.ask("/override")["items"]
    assert [(one["kind"], one["tool"], one["scope"]) for one in pinned] == [("pin", "share_note", "all")]
    page.open(f"{riglm.control}/#/overrides")
    page.tab_to("[data-action=delete-override]")
    page.press(Keys.ENTER)
    page.says("No override is in force")


async def test_a_tool_is_excluded_once_and_stays_in_sight_with_the_focus_on_it(page, riglm):
    riglm.change({"filtering": {"strategy": "allowlist", "allowlist": ["*_song"]}})
    try:
        async with riglm.client() as client:
            await listed(client)
            page.open(f"{riglm.control}/#/sessions")
            page.click("tbody th a")
            page.says("Show all")
            first = page.find("[data-action=override]")
            tool = first.get_attribute("data-tool")
            first.send_keys(Keys.ENTER)
            page.click("dialog [name=kind][value=exclude]")
            page.find("dialog .main-button")
            page.run("for (let times = 0; times < 3; times++) document.querySelector('dialog .main-button').click()")
            page.until(lambda: "never" in (page.run(_ROW, tool) or ""), "its row says so")
            page.next_turn()
            assert page.run("return document.activeElement.dataset.tool") == tool
            made = riglm.ask("/override")["items"]
            page.open(f"{riglm.control}/#/overrides")
            page.click("[data-action=delete-override]")
            page.says("No override is in force")
    finally:
        riglm.change({"filtering": {"strategy": None, "allowlist": None}})
    assert [(one["kind"], one["tool"]) for one in made] == [("exclude", tool)]


def test_a_changed_tool_is_shown_with_its_difference_and_approved(page, riglm):
    page.open(f"{riglm.control}/#/changes")
    page.says('"description": "Reads a file.\\u200b"')
    page.tab_to("[data-action=approve]")
    page.press(Keys.ENTER)
    page.says("No tool changed since it was approved")
    assert riglm.ask("/tools/changes")["items"] == []


def test_the_focus_of_what_is_gone_goes_to_what_was_around_it(page, riglm):
    page.open(f"{riglm.control}/")
    page.says("Tools used most")
    assert page.driver.execute_async_script(_FOCUS_AFTER_MORPH) == "list"


_FOCUS_AFTER_MORPH = """
const [done] = arguments;
const list = document.createElement("div");
list.id = "list";
list.tabIndex = 0;
const next = list.cloneNode();
list.innerHTML = "<p><button>Gone</button></p>";
document.body.append(list);
list.querySelector("button").focus();
import("./assets/core/morph.js").then(({ morph }) => {
  morph(list, next);
  done(document.activeElement.id);
});
"""


def test_a_name_that_looks_like_a_page_is_only_text(page, riglm):
    page.open(f"{riglm.control}/#/tools")
    page.says(HOSTILE)
    assert page.run("return document.querySelectorAll('main img').length") == 0
    page.open(f"{riglm.control}/#/tools/{quote(HOSTILE, safe='')}")
    page.says("Used together with")
    assert page.run("return document.querySelector('h1').innerText") == HOSTILE
    assert HOSTILE in page.driver.title
    assert page.rate_limited_log() == []


def test_overview_verdict_names_what_is_missing(page, riglm):
    page.open(f"{riglm.control}/")
    page.says("No verdict yet: it takes ")
    shown = page.run("return document.getElementById('verdict').innerText")
    assert riglm.ask("/stats/summary")["verdict"]["text"].replace("`", "") in shown


def test_numbers_below_zero_are_shown_as_a_loss(page, riglm):
    page.open(f"{riglm.control}/#/overrides")
    page.says("In force")
    assert page.driver.execute_async_script(_LOSS) == "\N{MINUS SIGN}485K a loss"


_LOSS = """
const done = arguments[arguments.length - 1];
const modules = ["core/formats.js", "parts/numbers.js"].map((path) => import(`./assets/${path}`));
Promise.all(modules).then(([format, { shower, signed }]) => {
  const net = { tokens: { net: -485_000 } };
  const shown = signed(net.tokens.net, shower("summary", net)("/tokens/net", format.rough));
  done(shown.className === "loss" ? shown.textContent : shown.className);
});
"""


def test_a_riglm_that_is_gone_is_told_and_found_again(page, riglm):
    page.open(f"{riglm.control}/")
    page.says("Tools used most")
    page.online(False)
    page.says("riglm does not answer")
    page.says("Tools used most")
    page.online(True)
    page.until(lambda: "does not answer" not in page.text(), "the page found it again")


def test_without_a_token_the_page_asks_for_one_and_buttons_are_for_those_who_may(stranger, riglm):
    page = stranger
    page.open(f"{riglm.control}/#/tools")
    page.find("#token")
    assert find_violations(page) == []
    page.find("#token").send_keys("wrong-0123456789abcdef", Keys.ENTER)
    page.says("riglm rejected this token")
    field = page.find("#token")
    field.clear()
    field.send_keys(READ_TOKEN, Keys.ENTER)
    page.says("Last used")
    assert page.run("return document.querySelectorAll('[data-action=override]').length") == 0
    page.click("#forget-token")
    page.find("#token").send_keys(WRITE_TOKEN, Keys.ENTER)
    page.find("[data-action=override]")
    assert page.run("return localStorage.length") == 0, "the token is kept for this tab only"
