"""The examples as a user has them: scripts beside each other in one directory."""

import importlib
from pathlib import Path

import pytest

from riglm import ToolSelector

EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = "prepare the anniversary party of the team"
"""Says nothing of the tools that it takes."""

HABIT = ("rooms_book", "printer_print", "expenses_submit")
"""What such tasks took before."""


@pytest.fixture
def example(monkeypatch):
    """Imports an example by name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def a_selector():
    """A selector of at most eight tools that has seen the same kind of task before."""

    def made(tools):
        selector = ToolSelector(tools, max_tools=8, embedder="static")
        for words in ("get ready for the anniversary party", "the team wants an anniversary party: prepare it"):
            session = selector.session()
            session.select(words)
            for tool in HABIT:
                session.used(tool)
            session.close()
        opened.append(selector)
        return selector

    opened = []
    yield made
    for selector in opened:
        selector.close()
