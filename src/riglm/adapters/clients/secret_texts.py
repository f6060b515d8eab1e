"""Secrets in the lines of clients' files and of riglm's: masked before they are shown on a terminal."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from riglm.domain.redaction import (
    AFTER_SCHEME,
    MASK,
    REFERENCE,
    SCHEME,
    Redactor,
    assigned_secrets,
    holds_secret,
    looks_secret,
    secrets_of_command,
    secrets_of_url,
)

_STRING: Final = r'"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'"
_TOKEN: Final = re.compile(
    rf"(?P<key>{_STRING}|[A-Za-z_][\w.-]*)(?P<sign>[ \t]*[:=][ \t]*)(?P<value>{_STRING}|[^\s,\[\]{{}}\"'#]+)|{_STRING}"
)
"""A key with its value, or a text, in JSON, YAML or TOML, also in a comment."""

_VARIABLE: Final = re.compile(r"((?:(?:Bearer|Basic|Token) )?(?:\$\{(?:env:)?\w+(?::-)?\}|\{env:\w+\}))")
_NOT_SECRET: Final = frozenset({"command", "args", "cwd", "type"})
_MIN_RANDOM_LENGTH: Final = 8
"""Minimum length of a secret under a name that does not suggest one: a client's history has many short texts."""


class Cover:
    """Masks secrets in lines of files: by the names that they are under, by their looks, and those of commands."""

    def __init__(self, *documents: Any, shown: Iterable[str] = ()) -> None:
        """`documents` are the files as they were read. What is `shown` is no secret."""
        found = {text for document in documents for text in _command_secrets(document)} - set(shown)
        escaped = {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for text in found for is_ascii in (True, False)}
        self._redact = Redactor(found | escaped)

    def __call__(self, text: str) -> str:
        """Return the text with a mask for each secret."""
        parts = _VARIABLE.split(text)
        text = "".join(part if place % 2 else self._redact(part) for place, part in enumerate(parts))
        return _TOKEN.sub(lambda found: _mask_value(found) if found["key"] else _mask_random(found.group()), text)


def _mask_value(found: re.Match[str]) -> str:
    name, written = _meaning(found["key"]), found["value"]
    value, begin = _meaning(written), found["key"] + found["sign"]
    if name in _NOT_SECRET or "://" in value:
        return begin + written
    if holds_secret(name, re.sub(SCHEME, "", value)):
        return begin + _masked(written)
    literal = re.sub(REFERENCE, "", value)
    for secret in (*assigned_secrets(literal), *(each["value"] for each in re.finditer(AFTER_SCHEME, literal))):
        written = written.replace(secret, MASK)
    return begin + written


def _mask_random(written: str) -> str:
    text = _meaning(written)
    if len(text) < _MIN_RANDOM_LENGTH or any(part in text for part in (" ", "://", MASK)):
        return written
    return _masked(written) if looks_secret(text) else written


def _masked(written: str) -> str:
    quote = written[0] if written[0] in "\"'" else ""
    return f"{quote}{MASK}{quote}"


def _meaning(written: str) -> str:
    """Return the text that a value means, or the value where it is not JSON."""
    try:
        return str(json.loads(written)) if written.startswith('"') else written.strip("'")
    except ValueError:
        return written[1:-1]


def _command_secrets(value: Any) -> Iterator[str]:
    """Yield the secrets in command lines and URLs, at any depth."""
    if isinstance(value, Mapping):
        given = [each if isinstance(each, list) else [each] for each in map(value.get, ("command", "args"))]
        yield from secrets_of_command([word for words in given for word in words if isinstance(word, str)])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _command_secrets(item)
    elif isinstance(value, str) and "://" in value:
        yield from secrets_of_url(value)
