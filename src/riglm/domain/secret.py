"""Secrets in text: found, and redacted."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from riglm.domain.chance import looks_random

MASK = "***"
"""Replaces a secret."""

SHORTEST_SECRET = 4
"""A known value of fewer characters is not searched for: it would cover innocent text and hide nothing."""

# From the colon on: a pattern that began with the scheme would take quadratic time on long words.
_URL = re.compile(r"://[^\s\"'<>]+")
_QUERY_AND_FRAGMENT = re.compile(r"(?<=\?)[^#]+|(?<=#).+", re.DOTALL)
_END_OF_PLACE = re.compile(r"[/?#]")
_TAKEN_FOR_ELSE = re.compile(r"[/?#@\[\]\s\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})|%00")
"""What ends a password for one reader of URLs or another, or makes it tell the password in an error."""
_CREDENTIAL = re.compile(
    r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?(?:[a-z][\w-]{0,20}\s+)?|bearer\s+)(?!\*\*\*)[^\s\"',;]+"
)
_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|api[-_]?key|access[-_]?key|credential|authorization|cookie)")


def sounds_secret(name: str) -> bool:
    """Whether a value under this name is better not shown."""
    return _SECRET_NAME.search(name) is not None


def mask_url(url: str) -> str:
    """The URL with user, password, query and fragment covered, and all else as it was written.

    All that may be a password is covered: one that holds a `/` as it is reaches as far as the last `@`. What cannot be
    read as a URL is covered whole.
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
        known = sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text without its secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return _CREDENTIAL.sub(rf"\g<1>{MASK}", _URL.sub(_mask_match, text))
