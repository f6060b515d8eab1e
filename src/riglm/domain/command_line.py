"""Secrets among the words of a command: only what is surely harmless is shown."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from riglm.domain.chance import looks_random
from riglm.domain.secret import MASK, cover_urls, secrets_of_url, sounds_secret, urls_in

RUNNERS: Final = re.compile(r"npx|bunx|uvx|pipx|npm|pnpm|yarn|bun|deno|uv|node|python[\d.]*|docker|podman")
"""Programs that run another program, whose name they are given."""

RUNNER_VERBS: Final = frozenset({"run", "exec", "dlx", "x", "tool"})
"""Options of a runner before that name."""

_HARMLESS_WORDS: Final = frozenset({"stdio", "http", "sse", "streamable-http", "serve", "server", "start", "mcp"})
_OPTION: Final = re.compile(r"-[A-Za-z]{1,3}|--[A-Za-z][A-Za-z0-9_-]{0,40}")
_FLAGS: Final = frozenset(
    {"-y", "-q", "-i", "-it", "--yes", "--quiet", "--rm", "--init", "--interactive", "--verbose", "--stdio"}
    | {"--debug", "--read-only", "--readonly", "--isolated", "--no-cache", "--offline", "--help", "--version"}
)
"""Options that take no value."""

_HARMLESS_OPTIONS: Final = frozenset(
    {"-m", "-jar", "--port", "--host", "--transport", "--log-level", "--loglevel", "--level", "--mode", "--from"}
    | {"--with", "--python", "--directory", "--dir", "--cwd", "--root", "--path", "--file", "--config", "--package"}
    | {"--url", "--endpoint", "--base-url", "--timeout", "--region", "--network", "--platform", "--registry"}
    | {"--prefix", "--repository", "--db-path", "--browser", "--toolsets", "--readonly", "--call-delay"}
)
_SECRET_OPTIONS: Final = frozenset({"-p", "-H", "-k", "-u", "--pat", "--key", "--auth", "--pin", "--pwd", "--header"})
_NAMING_WHAT_RUNS: Final = frozenset({"-m", "-jar"})
_PATH: Final = re.compile(
    r"(?:~|\.{1,2})?/.*|[A-Za-z]:[\\/].*|.*\.(?:[cm]?[jt]s|py|sh|jar|json|ya?ml|toml|db|sqlite3?)"
)
_NAMED: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]{0,40})(?P<sign>=|:\s*)(?P<value>.*)", re.DOTALL)
_PACKAGE: Final = re.compile(r"@?[A-Za-z][\w.-]*(?:/[A-Za-z][\w.-]*)*(?:(?:@|==|:)[\w.-]{1,20})?")


class _Word(NamedTuple):
    """A word as it may be shown, what of it is covered, and the name that this stands behind, if any."""

    shown: str
    covered: str = ""
    name: str = ""


def mask_command(words: Sequence[str]) -> list[str]:
    """The words of a command with all covered that is not surely harmless.

    Shown are options and names before `=` and `:`, what runs, plain paths, and the values of options that hold no
    secrets; of URLs what `mask_address` shows.
    """
    return [word.shown for word in _read(words)]


def secrets_of_command(words: Sequence[str]) -> list[str]:
    """What of the words of a command must not be shown elsewhere either.

    What is covered for caution's sake alone and is a plain word is left out: it would cover that word in all logs.
    """
    values = [word.covered for word in _read(words) if word.covered and _is_secret(word)]
    found = [part for value in values for part in dict.fromkeys([value, value.rpartition(" ")[2]])]
    return found + [secret for word in words for url in urls_in(word) for secret in secrets_of_url(url)]


def _is_secret(word: _Word) -> bool:
    is_named_so = (
        word.name in _SECRET_OPTIONS or sounds_secret(word.name) or "--" + word.name.lower() in _SECRET_OPTIONS
    )
    return is_named_so or re.search(r"\d|[a-z][A-Z]|[^\w-]", word.covered) is not None or looks_random(word.covered)


def _read(words: Sequence[str]) -> Iterator[_Word]:
    if words:
        yield _Word(cover_urls(words[0]))
    is_runner = bool(words) and RUNNERS.fullmatch(PurePath(words[0]).name) is not None
    option = ""
    for word in words[1:]:
        if word.startswith("-"):
            yield _option(word)
            option = word if _OPTION.fullmatch(word) and word not in _FLAGS else ""
            continue
        if option:
            yield _value(option, word)
            is_runner = is_runner and option not in _NAMING_WHAT_RUNS
        elif is_runner and _PACKAGE.fullmatch(word) and not looks_random(word):
            yield _Word(word)
            is_runner = word in RUNNER_VERBS
        else:
            yield _positional(word)
        option = ""


def _option(word: str) -> _Word:
    if word in {"-", "--"}:
        return _Word(word)
    name, equals, value = word.partition("=")
    if not _OPTION.fullmatch(name) or looks_random(name):
        return _Word(MASK, word)
    if not equals or not value:
        return _Word(word)
    inner = _value(name, value)
    return inner._replace(shown=f"{name}={inner.shown}")


def _value(option: str, value: str) -> _Word:
    if option in _HARMLESS_OPTIONS and not sounds_secret(option) and _is_harmless(value):
        return _Word(cover_urls(value))
    named = _NAMED.fullmatch(value)
    if named is not None and "://" not in value and not looks_random(named["name"].lower()):
        return _Word(named["name"] + named["sign"] + MASK, named["value"], option)
    return _Word(MASK, value, option)


def _positional(word: str) -> _Word:
    if "://" in word or word in _HARMLESS_WORDS or (_PATH.fullmatch(word) and not looks_random(word)):
        return _Word(cover_urls(word))
    named = _NAMED.fullmatch(word)
    if named is not None and not looks_random(named["name"].lower()):
        return _Word(named["name"] + named["sign"] + MASK, named["value"], named["name"])
    return _Word(MASK, word)


def _is_harmless(value: str) -> bool:
    return "://" in value or not looks_random(value)
