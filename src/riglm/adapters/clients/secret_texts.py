"""Which texts in clients' files and in riglm's are better not shown on a terminal."""

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
    assignments,
    holds_secret,
    looks_secret,
    secrets_of_command,
    secrets_of_options,
    secrets_of_url,
    sounds_secret,
)

_COMMAND: Final = ("command", "args")
_HOLDING: Final = frozenset({"env", "environment", "headers", "http_headers", "requestInit"})
_PLAIN: Final = re.compile(r"[a-z]+(?:-[a-z]+)*|\d{1,5}|[A-Z]{1,6}")
_VARIABLE: Final = re.compile(r"((?:(?:Bearer|Basic|Token) )?(?:\$\{(?:env:)?\w+(?::-)?\}|\{env:\w+\}))")
_STRING: Final = re.compile(r'"(?:\\.|[^"\\\n])*"')
_SPACE: Final = re.compile(r"\s")
_COMMENT: Final = re.compile(rf"{_STRING.pattern}|(?P<comment>//[^\n]*|/\*.*?\*/|#[^\n]*)", re.DOTALL)
_QUOTED: Final = re.compile(r"""["']([^"'\n]+)["']""")
_VARIABLE_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_MIN: Final = 4
_MIN_RANDOM: Final = 8
"""Minimum length of a secret under a name that does not suggest one: a client's history has many short texts."""


class Cover:
    """Covers in any text what documents hold of secrets."""

    def __init__(self, *documents: Any, texts: Iterable[str] = (), shown: Iterable[str] = ()) -> None:
        """The documents are files as they were read: values below keys. What is `shown` is no secret.

        `texts` are the files as they are written: what was commented out has secrets, too.
        """
        found = [text for document in documents for text in _secrets(document)]
        found += [text for whole in texts for text in _in_comments(whole)]
        found += [text for each in documents for text in secrets_of_options(each)]
        self._whole = {part for text in found for part in _parts(text)} - set(shown)
        written = {form for text in self._whole for form in _forms(text)}
        self._redact = Redactor(written)
        short = sorted((re.escape(text) for text in self._whole if len(text) < _MIN), key=len, reverse=True)
        self._short = re.compile(rf"(?<=[\s=:'])(?:{'|'.join(short)})(?=[\s,'\"\]}}]|$)") if short else None
        plain = {pair for document in documents for pair in _plain(document)}
        self._plain = _after_their_names(plain)

    def __call__(self, text: str) -> str:
        """The text with a mask for each of them."""
        text = _STRING.sub(self._string, text)
        if self._short is not None:
            text = self._short.sub(MASK, text)
        if self._plain is not None:
            text = self._plain.sub(rf"\g<name>{MASK}", text)
        parts = _VARIABLE.split(text)
        return "".join(part if place % 2 else self._redact(part) for place, part in enumerate(parts))

    def _string(self, found: re.Match[str]) -> str:
        """A text in quotes: short secrets are covered only where they are the whole, strange escapes are understood."""
        try:
            meant = json.loads(found.group())
        except ValueError:
            return found.group()
        if meant in self._whole or (
            "\\" in found.group() and any(len(each) >= _MIN and each in meant for each in self._whole)
        ):
            return f'"{MASK}"'
        return found.group()


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in _HOLDING and isinstance(item, Mapping):
                yield from (text for inner, each in item.items() for text in _held(str(inner), each))
            elif name not in _COMMAND:
                yield from _secrets(item)
        yield from _of_command(value)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item)
    elif isinstance(value, str):
        if "://" in value:
            yield from secrets_of_url(value)
        elif len(value) >= _MIN_RANDOM and not _SPACE.search(value) and looks_secret(value):
            yield value


def _held(name: str, value: Any) -> Iterator[str]:
    """Yield the secrets of a variable or header. Plain words are covered behind their names only."""
    if not isinstance(value, str):
        return
    if holds_secret(name, value) and (sounds_secret(name) or not _PLAIN.fullmatch(value)):
        yield value
    literal = REFERENCE.sub("", value)
    yield from assigned_secrets(literal)
    yield from (found["value"] for found in AFTER_SCHEME.finditer(literal))
    if "://" in value:
        yield from secrets_of_url(value)


def _plain(value: Any) -> Iterator[tuple[str, str]]:
    """Variables and headers that hold what is plainly a word or a number: covered only behind their names."""
    if isinstance(value, list):
        for item in value:
            yield from _plain(item)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if name in _HOLDING and isinstance(item, Mapping):
                held = ((str(inner), each) for inner, each in item.items() if isinstance(each, str | int | float))
                named = ((inner, json.dumps(each).strip('"')) for inner, each in held if each != "")
                yield from ((inner, text) for inner, text in named if holds_secret(inner, text))
            else:
                yield from _plain(item)


def _after_their_names(pairs: Iterable[tuple[str, str]]) -> re.Pattern[str] | None:
    each = [
        rf"""(?<![\w.-])["']?{re.escape(name)}["']?\s*[:=]\s*["']?(?=(?:{re.escape(value)})(?:["'\s,}}]|$))"""
        for name, value in pairs
        if _PLAIN.fullmatch(value) or not value.strip("0123456789.eE+-") or value in {"true", "false"}
    ]
    return re.compile(rf"(?P<name>{'|'.join(each)})[^\"'\s,}}]+") if each else None


def _in_comments(text: str) -> Iterator[str]:
    """What is quoted in comments and looks secret, by itself or by the name before it: servers are commented out."""
    comments = "\n".join(found["comment"] for found in _COMMENT.finditer(text) if found["comment"])
    for name, value in assignments(comments):
        if value[0] in "\"'" and (sounds_secret(name) or _VARIABLE_NAME.fullmatch(name)):
            yield value[1:-1]
    for quoted in _QUOTED.findall(comments):
        if "://" in quoted:
            yield from secrets_of_url(quoted)
        elif len(quoted) >= _MIN_RANDOM and not _SPACE.search(quoted) and looks_secret(quoted):
            yield quoted


def _of_command(server: Mapping[str, Any]) -> Iterator[str]:
    given = [each if isinstance(each, list) else [each] for each in map(server.get, _COMMAND)]
    words = [word for each in given for word in each]
    yield from secrets_of_command([word for word in words if isinstance(word, str)])
    yield from (text for word in words if not isinstance(word, str) for text in _secrets(word))


def _parts(text: str) -> Iterator[str]:
    """Return a whole secret, and its parts around references and behind the name of a scheme."""
    if REFERENCE.sub("", SCHEME.sub("", text)).strip():
        yield text
    for part in REFERENCE.split(SCHEME.sub("", text)):
        if len(part.strip()) >= _MIN:
            yield part.strip()


def _forms(text: str) -> Iterator[str]:
    if len(text) >= _MIN:
        yield from {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
