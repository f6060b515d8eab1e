"""Values of a line, read or refused. What was written is not repeated: it may be private."""

from typing import Any

from riglm.application.json_lines import BadLine
from riglm.domain.knowledge.normalising import is_visible


def visible_text(key: str, value: Any) -> str:
    """A text in which something can be seen.

    Raises:
        BadLine: it is something else.
    """
    if isinstance(value, str) and is_visible(value):
        return value
    raise wrong(key, "a text that can be seen", value, f'write "{key}": "..."')


def texts(key: str, value: Any) -> tuple[str, ...]:
    """A list of texts, each once; none when there is no list.

    Raises:
        BadLine: it is something else.
    """
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(dict.fromkeys(value))
    raise wrong(key, "a list of texts", value, f'write "{key}": ["...", ...] or leave it away')


def wrong(key: str, expected: str, value: Any, fix: str) -> BadLine:
    """The error for a value that is not what it must be."""
    return BadLine(f"{key!r} must be {expected}, {_found(value)} — fix: {fix}")


def _found(value: Any) -> str:
    match value:
        case None:
            return "and is missing"
        case bool():
            return "not true or false"
        case int() | float():
            return "not this number"
        case str():
            return "not this text"
        case list():
            return "not this list"
        case _:
            return "not an object"
