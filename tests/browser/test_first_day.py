"""The dashboard and the report before the first session, and after it."""

import pytest

from tests.browser.accessibility import find_violations
from tests.browser.served import TOOLS, served


@pytest.fixture(scope="module")
def riglm(tmp_path_factory):
    with served(tmp_path_factory.mktemp("new")) as found:
        yield found


async def test_each_view_names_what_is_missing_on_the_first_day_and_is_accessible(page, riglm):
    views = {
        "#/": "No verdict yet: no session is recorded",
        "#/sessions": "No session was recorded",
        "#/tools": "No tool is known yet",
        "#/together": "No two tools were used in one session",
        "#/clusters": "No session used a tool so far",
        "#/overrides": "No override is in force",
        "#/changes": "No tool changed",
    }
    for address, words in views.items():
        page.open(f"{riglm.control}/{address}")
        page.says(words)
        assert find_violations(page) == [], address
    async with riglm.client("claude-code") as client:
        await client.list_tools(cache_mode="refresh")
        await client.call_tool(TOOLS[0], {})
        page.open(f"{riglm.control}/")
        page.says("Nothing is hidden from Claude Code, which defers tools itself: riglm has it load ")
    page.says("No verdict yet: it takes 19 more sessions and 99 more tool calls.")
    page.says("A second point in time makes a chart.")
    page.says("Counted from 1 session with 1 call.")
    assert page.run("return document.querySelectorAll('canvas').length") == 0
    assert page.run(_WITHOUT_SOURCE) == []
    assert find_violations(page) == []
    assert page.rate_limited_log() == []


_WITHOUT_SOURCE = """
const sources = JSON.parse(document.getElementById("main").dataset.sources);
const listed = [...document.querySelectorAll(".origins dt")].map((term) => term.textContent);
const numbers = [...document.querySelectorAll("main .number")];
return numbers.map((one) => one.title).filter((title) => {
  const source = title.split(" · ").at(-1).split("/")[0];
  return !(source in sources) || !listed.includes(source);
});
"""
