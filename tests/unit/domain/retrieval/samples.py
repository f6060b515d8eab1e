"""Tools and vectors for tests: texts that share words point the same way."""

from collections.abc import Sequence

import numpy as np

from riglm.domain.prediction import Context, Vector
from riglm.domain.retrieval.words import hashed, request_texts, tool_text, words
from riglm.domain.tool import ToolProfile

MODEL = "words-64"

SPIKE = (
    ToolProfile(name="echo", description="Echoes back the input string", parameters=("message",)),
    ToolProfile(name="get-sum", description="Returns the sum of two numbers", parameters=("a", "b")),
    ToolProfile(name="add-tasks", description="Add new tasks to a project in the task list", parameters=("tasks",)),
    ToolProfile(name="browser_navigate", description="Navigate to a URL in the browser", parameters=("url",)),
    ToolProfile(
        name="tavily_search",
        description="Search the web for current information on any topic and return relevant online results",
        parameters=("query", "max_results"),
    ),
)


def vector(text: str) -> Vector:
    """The sum of one fixed direction for each word; a direction of its own for a text without words."""
    stems = words(text) or ["\0"]
    total = np.sum([np.random.default_rng(hashed(stem)).standard_normal(64) for stem in stems], axis=0)
    return np.asarray(total / np.linalg.norm(total), np.float32)


def context(text: str) -> Context:
    """A context as it is embedded: the whole and its sentences."""
    return Context(text=text, vector=np.stack([vector(part) for part in request_texts(text)]), model=MODEL)


def vectors(tools: Sequence[ToolProfile]) -> dict[str, Vector]:
    return {tool.name: vector(tool_text(tool)) for tool in tools}
