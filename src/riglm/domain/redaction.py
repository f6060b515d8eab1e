"""Secrets in text: found, and redacted."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

_BETWEEN_WORDS: Final = re.compile(r"[-_.~@+:,=/ ]+")
_WORD: Final = re.compile(r"[A-Za-z]?[a-z]*|[A-Z]{1,4}")
_HUMPS: Final = re.compile(r"[a-z]{2,}(?:[A-Z][a-z]+){1,3}")
_NUMBERED: Final = re.compile(r"[A-Za-z][a-z]{0,11}\d{1,2}|\d{1,5}|v\d{1,4}")
_UNSPEAKABLE: Final = re.compile(r"[^aeiouy]{5}", re.IGNORECASE)
_KEY: Final = re.compile(r"(?:[spr]k|gh[opsu]|glpat|hf|xox[abprs])[-_]|github_pat_|AKIA|AIza|ya29")
"""How keys of well-known services begin."""

_MAX_WORD_LENGTH: Final = 22
_MAX_WORDS: Final = 8


def looks_random(text: str) -> bool:
    """Whether a text is anything else than a few words, versions and short numbers with signs between them.

    In doubt it is: who hides what is harmless loses less than who shows a key.
    """
    words = [word for word in _BETWEEN_WORDS.split(text) if word]
    return begins_like_a_key(text) or len(words) > _MAX_WORDS or not all(map(_is_plain, words))


def begins_like_a_key(text: str) -> bool:
    """Whether a text begins as the keys of well-known services do."""
    return _KEY.match(text) is not None


def _is_plain(word: str) -> bool:
    if _NUMBERED.fullmatch(word):
        return True
    if len(word) > _MAX_WORD_LENGTH or not (_WORD.fullmatch(word) or _HUMPS.fullmatch(word)):
        return False
    vowels = sum(word.lower().count(vowel) for vowel in "aeiouy")
    return len(word) < 6 or (5 * vowels >= len(word) and not _UNSPEAKABLE.search(word))


MASK = "***"
"""Replaces a secret."""

MIN_SECRET = 4
"""A known value of fewer characters is not searched for: it would cover innocent text and hide nothing."""

# From the colon on: a pattern that began with the scheme would take quadratic time on long words.
_URL = re.compile(r"://[^\s\"'<>]+")
_QUERY_AND_FRAGMENT = re.compile(r"(?<=\?)[^#]+|(?<=#).+", re.DOTALL)
_END_OF_PLACE = re.compile(r"[/?#]")
_TAKEN_FOR_ELSE = re.compile(r"[/?#@\[\]\s\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})|%00")
"""Characters that end a password for some URL parsers, or make a parser quote the password in an error."""
_CREDENTIAL = re.compile(
    r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?(?:[a-z][\w-]{0,20}\s+)?|bearer\s+)(?!\*\*\*)[^\s\"',;]+"
)
_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|api[-_]?key|access[-_]?key|credential|authorization|cookie)")


def sounds_secret(name: str) -> bool:
    """Whether a value under this name is better not shown."""
    return _SECRET_NAME.search(name) is not None


_SECRET_WORDS: Final = re.compile(
    r"(?i)(?<![a-z])(?:pass(?:phrase|code|wd)?|pwd|pw|pin|pat|auth|keys?|dsn|signature|creds?|jwt|bearer|[ht]?otp"
    r"|session|sid|salt|seed|mnemonic|licen[cs]e|webhook|conn(?:ection)?[-_. ]?str(?:ing)?s?"
    r"|access[-_. ]?code)(?![a-z])|(?:pass|pwd|auth|key)(?![a-z])"
)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def may_name_secret(name: str) -> bool:
    """Whether a word of a name suggests a secret, as in `DB_PASS`, `dbPass` and `DBPASS`."""
    return sounds_secret(name) or _SECRET_WORDS.search(_HUMP.sub("_", name)) is not None


_ASSIGNMENT: Final = re.compile(
    r"""(?<![\w.-])(?P<name>[A-Za-z][\w.:-]{0,63})(?P<sign>["']?\s{0,4}[=:]\s{0,4}(?:(?i:bearer|basic|token)\s{1,4})?)"""
    r"""(?!//|\$[A-Z_{(])(?P<value>"[^"]*"|'[^']*'|[^\s"'`;,&|]+)"""
)
AFTER_SCHEME: Final = re.compile(r"(?i)\b(?:bearer|basic|token)\s+(?P<value>[^\s\"',;]+)")
"""What a header says after the name of its scheme."""


def assigned_secrets(text: str) -> list[str]:
    """Return what a text assigns to names that suggest a secret, as in `Password=…;` and `export TOKEN=…`."""
    found = [each for each in _ASSIGNMENT.finditer(text) if may_name_secret(each["name"])]
    return [each["value"].strip("\"'") for each in found if holds_secret(each["name"], each["value"].strip("\"'"))]


_PLACE: Final = re.compile(r"(?:(?:~|\.{1,2}|\$\{?[\w:]+\}?)?/|[A-Za-z]:[\\/]|\\\\)[^\x00-\x1f\"'`;|&<>]*")


def is_path(text: str) -> bool:
    """Whether a text is a path that begins at a known place: `/`, `~`, `.`, a variable, or a drive."""
    return _PLACE.fullmatch(text) is not None and "//" not in text


def holds_secret(name: str, value: str) -> bool:
    """Whether the value of a variable or header looks like a secret by itself, or is one by its name.

    A path is none; under a secret-sounding name only one of plain words. Of a URL, `secrets_of_url` has the secrets.
    """
    is_named_so = may_name_secret(name)
    if not value.strip():
        return False
    if all(map(is_path, value.split(":"))) or is_path(value):
        return is_named_so and any(looks_random(part.lstrip(".")) for part in re.split(r"[/\\:]", value))
    if "://" in value and not is_named_so:
        return False
    return is_named_so or any(map(looks_random, value.split()))


def mask_url(url: str) -> str:
    """The URL with user, password, query and fragment covered, and all else as it was written.

    Everything that may be a password is redacted: one with a raw `/` extends to the last `@`. A text that cannot be
    parsed as a URL is redacted completely.
    """
    try:
        urlsplit(url)
    except ValueError:
        return MASK
    begin, credentials, rest = _parted(url)
    return begin + (MASK + "@" if credentials else "") + _QUERY_AND_FRAGMENT.sub(MASK, rest)


def place_of_url(url: str) -> str:
    """The host and port that a URL names, and nothing of its user or password."""
    return _END_OF_PLACE.split(_parted(url)[2], maxsplit=1)[0]


def is_clearly_written(url: str) -> bool:
    """Whether user and password of a URL are written so that every reader takes the same for them."""
    user, _, password = _parted(url)[1].partition(":")
    return not any(_TAKEN_FOR_ELSE.search(part) for part in (user, password))


def _parted(url: str) -> tuple[str, str, str]:
    """The scheme with its `://`, what may be user and password, and the rest after the `@`; a URL has none or all."""
    begin, rest = _begun(url)
    longest = rest.rpartition("@")[0]
    credentials = longest if ":" in longest else _user_of(rest)
    return begin, credentials, rest[len(credentials) + 1 :] if credentials else rest


def _begun(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.partition("://")
    return (scheme + separator, rest) if separator else ("", url)


def _user_of(rest: str) -> str:
    """User and password as the rules for URLs have them: before any `/`."""
    return _END_OF_PLACE.split(rest, maxsplit=1)[0].rpartition("@")[0]


def mask_address(url: str) -> str:
    """As `mask_url`, with all parts of the path covered that look random: some servers take a key there."""
    begin, credentials, rest = _parted(mask_url(url))
    place, slash, path = rest.partition("/")
    if not slash:
        return begin + (credentials and credentials + "@") + rest
    path, mark, more = _split_at_end_of_path(path)
    shown = "/".join(MASK if looks_random(unquote(part)) else part for part in path.split("/"))
    return f"{begin}{credentials and credentials + '@'}{place}/{shown}{mark}{more}"


def urls_in(text: str) -> list[str]:
    """Return the URLs in a text, without their schemes."""
    return ["x" + rest for rest in _URL.findall(text)]


def cover_urls(text: str) -> str:
    """The text with its URLs as `mask_address` shows them."""
    return _URL.sub(lambda found: mask_address("x" + found.group()).removeprefix("x"), text)


def mask_options(options: Any) -> Any:
    """Return arbitrary options, at any depth, with the values under secret-sounding names redacted."""
    if isinstance(options, Mapping):
        return {
            key: MASK if sounds_secret(str(key)) and value is not None else mask_options(value)
            for key, value in options.items()
        }
    if isinstance(options, list | tuple):
        return [mask_options(item) for item in options]
    return options


def secrets_of_options(options: Any) -> list[str]:
    """Return the texts under secret-sounding names among options, at any depth."""
    if isinstance(options, Mapping):
        return [
            text
            for key, value in options.items()
            for text in (_texts_in(value) if sounds_secret(str(key)) else secrets_of_options(value))
        ]
    if isinstance(options, list | tuple):
        return [text for item in options for text in secrets_of_options(item)]
    return []


def secrets_of_url(url: str) -> list[str]:
    """What may be the password, the values of the query, and random parts of the path, as written and as meant."""
    query, parts = _query_of(url), [*_passwords_in(url), *_random_parts_of(url)]
    written = [*parts, *(pair.partition("=")[2] for pair in query.split("&"))]
    meant = [*map(unquote, parts), *(value for _, value in parse_qsl(query))]
    return [secret for secret in dict.fromkeys(written + meant) if secret]


def passwords_of_url(url: str) -> tuple[str, ...]:
    """What may be the password, as written and as meant, and the values of the query under secret-sounding names.

    No other values: in a query with a driver's options, most of them are ordinary words.
    """
    passwords = _passwords_in(url)
    named = [value for name, value in parse_qsl(_query_of(url)) if sounds_secret(name)]
    return tuple(secret for secret in dict.fromkeys([*passwords, *map(unquote, passwords), *named]) if secret)


def _passwords_in(url: str) -> list[str]:
    """The password by the rules for URLs, and the longest that was perhaps meant."""
    return [credentials.partition(":")[2] for credentials in (_user_of(_begun(url)[1]), _parted(url)[1])]


def _random_parts_of(url: str) -> list[str]:
    path = re.split(r"[?#]", _parted(url)[2], maxsplit=1)[0].partition("/")[2]
    return [part for part in path.split("/") if looks_random(unquote(part))]


def _split_at_end_of_path(path: str) -> tuple[str, str, str]:
    found = re.search(r"[?#]", path)
    return (path[: found.start()], found.group(), path[found.end() :]) if found else (path, "", "")


def _query_of(url: str) -> str:
    return url.partition("#")[0].partition("?")[2]


def _texts_in(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts_in(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts_in(item)]
    return [value] if isinstance(value, str) else []


def _mask_match(found: re.Match[str]) -> str:
    return mask_url("x" + found.group()).removeprefix("x")


class Redactor:
    """Redacts the given secrets, credentials and the secret parts of URLs everywhere in a text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text without its secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return _CREDENTIAL.sub(rf"\g<1>{MASK}", _URL.sub(_mask_match, text))


RUNNERS: Final = re.compile(r"npx|bunx|uvx|pipx|npm|pnpm|yarn|bun|deno|uv|node|python[\d.]*|docker|podman")
"""Programs that run another program, whose name they are given."""

RUNNER_VERBS: Final = frozenset({"run", "exec", "dlx", "x", "tool"})
"""Options of a runner before that name."""

_HARMLESS_WORDS: Final = frozenset({"stdio", "http", "sse", "streamable-http", "serve", "server", "start", "mcp"})
_OPTION: Final = re.compile(r"-[A-Za-z]{1,3}|--[A-Za-z][A-Za-z0-9_-]{0,40}")
_GLUED_PASSWORD: Final = re.compile(r"(?P<name>-p)(?P<value>[^=]+)|(?P<user>-u[^=:]+:)(?P<password>.+)")
"""As `mysql -pPASSWORD` and `curl -uUSER:PASSWORD` take it."""
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
_MAX_LETTERS: Final = 4
"""Longest group of one-letter options with its hyphen."""
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "fish"})
_SHELL_OPTION: Final = re.compile(r"-[a-z]{0,4}c")
_NAMING_WHAT_RUNS: Final = frozenset({"-m", "-jar"})
_PATH: Final = re.compile(
    r"(?:~|\.{1,2})?/.*|[A-Za-z]:[\\/].*|.*\.(?:[cm]?[jt]s|py|sh|jar|json|ya?ml|toml|db|sqlite3?)"
)
_NAMED: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]{0,40})(?P<sign>=|:\s*)(?P<value>.*)", re.DOTALL)
_PACKAGE: Final = re.compile(r"@?[A-Za-z][\w.-]*(?:/[A-Za-z][\w.-]*)*(?:(?:@|==|:)[\w.-]{1,20})?")


class _Word(NamedTuple):
    """Return a word with redactions, the redacted part, and the variable name in front of it, if any.

    `inner` are the words of a command for a shell.
    """

    shown: str
    covered: str = ""
    name: str = ""
    inner: "tuple[_Word, ...]" = ()


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
    read = [each for word in _read(words) for each in (word, *word.inner)]
    values = [word.covered for word in read if word.covered and _is_secret(word)]
    found = [part for value in values for part in dict.fromkeys([value, value.rpartition(" ")[2]])]
    found += [secret for word in words for url in urls_in(word) for secret in secrets_of_url(url)]
    return list(dict.fromkeys(found + [secret for word in words for secret in assigned_secrets(word)]))


def _is_secret(word: _Word) -> bool:
    return word.name in _SECRET_OPTIONS or may_name_secret(word.name) or _looks_secret(word.covered)


def _looks_secret(text: str) -> bool:
    return re.search(r"\d|[a-z][A-Z]|[^\w-]", text) is not None or looks_random(text)


def _read(words: Sequence[str]) -> Iterator[_Word]:
    if words:
        yield _program(words[0])
    program = PurePath(words[0]).name if words else ""
    is_runner = RUNNERS.fullmatch(program) is not None
    option = ""
    for word in words[1:]:
        if word.startswith("-"):
            yield _option(word)
            option = word if "=" not in word and _is_option(word) and word not in _FLAGS else ""
            continue
        if program in _SHELLS and _SHELL_OPTION.fullmatch(option):
            yield _line(word)
        elif option:
            yield _value(option, word)
            is_runner = is_runner and option not in _NAMING_WHAT_RUNS
        elif is_runner and _PACKAGE.fullmatch(word) and not looks_random(word):
            yield _Word(word)
            is_runner = word in RUNNER_VERBS
        else:
            yield _positional(word)
        option = ""


def _program(word: str) -> _Word:
    if " -" in word:
        return _line(word)
    named = _NAMED.fullmatch(word)
    return _positional(word) if named and named["sign"] == "=" else _Word(cover_urls(word))


def _line(text: str) -> _Word:
    """A whole command in one word, as for a shell."""
    inner = tuple(_read(text.split()))
    return _Word(" ".join(each.shown for each in inner), inner=inner)


def _option(word: str) -> _Word:
    if word in {"-", "--"}:
        return _Word(word)
    name, equals, value = word.partition("=")
    glued = None if may_name_secret(name) else _GLUED_PASSWORD.fullmatch(word)
    if glued is not None and len(word) > _MAX_LETTERS:
        return _Word(MASK, glued["value"] or glued["password"], "-p")
    if not _is_option(name):
        return _Word(MASK, word)
    if not equals or not value:
        return _Word(word)
    inner = _value(name, value)
    return inner._replace(shown=f"{name}={inner.shown}")


def _is_option(word: str) -> bool:
    if may_name_secret(word):
        return not looks_random(word.lower())
    return _OPTION.fullmatch(word) is not None and not looks_random(word)


def _value(option: str, value: str) -> _Word:
    if option in _HARMLESS_OPTIONS and not sounds_secret(option) and _is_harmless(value):
        return _Word(cover_urls(value))
    if option not in _SECRET_OPTIONS and is_path(value) and not holds_secret(option, value):
        return _Word(value)
    named = _NAMED.fullmatch(value)
    if named is not None and "://" not in value and not looks_random(named["name"].lower()):
        is_password = may_name_secret(named["name"]) or (option == "--user" and named["sign"] == ":")
        return _Word(named["name"] + named["sign"] + MASK, named["value"], "--password" if is_password else option)
    return _Word(MASK, value, option)


def _positional(word: str) -> _Word:
    if is_path(word):
        return _Word(_ASSIGNMENT.sub(_mask_assigned, word))
    if "://" in word or word in _HARMLESS_WORDS or (_PATH.fullmatch(word) and not looks_random(word)):
        return _Word(cover_urls(word))
    named = _NAMED.fullmatch(word)
    if named is not None and not looks_random(named["name"].lower()):
        return _Word(named["name"] + named["sign"] + MASK, named["value"], named["name"])
    return _Word(MASK, word)


def _is_harmless(value: str) -> bool:
    return "://" in value or is_path(value) or not looks_random(value)


def _mask_assigned(found: re.Match[str]) -> str:
    is_secret = may_name_secret(found["name"]) and holds_secret(found["name"], found["value"])
    return found["name"] + found["sign"] + MASK if is_secret else found.group()
