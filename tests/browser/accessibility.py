"""Violations of accessibility rules on a page, found by axe-core."""

from functools import cache
from typing import Final

from tests.browser.window import Window
from tests.npm import installed

_VERSION: Final = "4.14.1"


_RULES: Final[dict[str, list[str]]] = {"light": [], "dark": ["color-contrast"]}
"""The rules for each color scheme, all if none is named: only contrast differs."""


def find_violations(window: Window, *schemes: str) -> list[str]:
    """Return the serious and critical violations with these color schemes, by default with both."""
    window.run(_source())
    found: list[str] = []
    for scheme in schemes or _RULES:
        window.prefer(scheme)
        found += window.driver.execute_async_script(_RUN, _RULES[scheme])
    return found


@cache
def _source() -> str:
    return (installed("axe-core", _VERSION) / "axe.min.js").read_text("utf-8")


_RUN: Final = """
const [rules, done] = arguments;
const only = rules.length ? { runOnly: { type: "rule", values: rules } } : {};
axe.run(document, { resultTypes: ["violations"], ...only }).then(({ violations }) => {
  const grave = violations.filter((one) => ["serious", "critical"].includes(one.impact));
  done(grave.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.target}: ${node.failureSummary}`)));
}, (error) => done([`axe failed: ${error}`]));
"""
