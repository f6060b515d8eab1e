"""What is embedded of a tool and of a context."""

import re
from typing import Final

from riglm.domain.retrieval.words import split_name
from riglm.domain.tool import ToolProfile

LONGEST_REQUEST: Final = 8_000
"""Characters of a context that count."""

MOST_SENTENCES: Final = 16
"""Sentences of a context that count each for itself."""

_LONGEST_DESCRIPTION: Final = 1_000
_FEWEST_WORDS: Final = 3
_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")


def tool_text(tool: ToolProfile) -> str:
    """What is embedded of a tool: its server, its name in words, and its description."""
    server = split_name(tool.server)
    name = split_name(tool.bare_name or tool.name)
    return f"{server} {name}: {tool.description[:_LONGEST_DESCRIPTION]}".strip()


def request_texts(text: str) -> tuple[str, ...]:
    """What is embedded of a context: the whole, and when it has several sentences each of them.

    A long request names several needs, and each is found better by the sentence that names it.
    """
    whole = text[:LONGEST_REQUEST]
    sentences = [part for part in _SENTENCE_END.split(whole) if len(part.split()) >= _FEWEST_WORDS]
    return (whole, *sentences[:MOST_SENTENCES]) if len(sentences) > 1 else (whole,)
