"""Secrets in text: found, and redacted."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

# Patterns are strings, compiled by `re` when they are first used: nearly no start needs one.
_BETWEEN_WORDS: Final = r"[-_.~@+:,=/ ]+"
_WORD: Final = r"[A-Za-z]?[a-z]*|[A-Z]{1,4}"
_HUMPS: Final = r"(?:[A-Z]{2,5}(?=[A-Z][a-z]{2})|[a-z]{2,})?(?:[A-Z][a-z]+){1,3}"
_NUMBERED: Final = (
    r"[A-Za-z][a-z]{0,11}\d{1,2}|\d{1,3}[A-Za-z]{1,2}|v\d{1,4}|sha\d{3}"
    r"|[a-z]{1,9}365|[a-z]{1,8}2[a-z]{1,8}|[a-z]{1,6}\d{1,2}[a-z]{1,3}"
)
_DAY: Final = r"(?:19|20)\d{2}[01]\d[0-3]\d"
_UNSPEAKABLE: Final = r"(?i)[^aeiouy]{5}"
_KEY: Final = (
    r"(?:[spr]k|gh[opsu]|glpat|xox[abeprs])[-_]|(?:github_pat|hf|npm)_"
    r"|AKIA|AIza|ya29|eyJ|(?:[A-Z0-9]{4,6}-){2,}[A-Z0-9]{4,6}$"
)
"""How keys of well-known services begin, and license keys as a whole."""

_MAX_WORD_LENGTH: Final = 22
_MAX_SHORT_WORD_LENGTH: Final = 8
_MAX_CAPITALS: Final = 12
_MAX_NUMBERED: Final = 3
_MAX_WORDS: Final = 8


def looks_random(text: str) -> bool:
    """Whether a text is anything else than a few words, versions and short numbers with signs between them.

    In doubt it is: who hides what is harmless loses less than who shows a key.
    """
    words = [word for word in re.split(_BETWEEN_WORDS, text) if word]
    numbered = sum(not word.isdecimal() and re.fullmatch(_NUMBERED, word) is not None for word in words)
    is_long = len(words) > _MAX_WORDS or numbered > _MAX_NUMBERED
    return begins_like_a_key(text) or is_long or not all(map(_is_plain, words))


def begins_like_a_key(text: str) -> bool:
    """Whether a text begins as the keys of well-known services do."""
    return re.match(_KEY, text) is not None


def _is_plain(word: str) -> bool:
    if word.isdecimal():
        return len(word) < 6 or re.fullmatch(_DAY, word) is not None
    if re.fullmatch(_NUMBERED, word):
        return True
    if len(word) > _MAX_WORD_LENGTH or not (re.fullmatch(_WORD, word) or re.fullmatch(_HUMPS, word)):
        return False
    return len(word) <= _MAX_SHORT_WORD_LENGTH or _is_speakable(word)


def _is_speakable(word: str) -> bool:
    vowels = sum(word.lower().count(vowel) for vowel in "aeiouy")
    return 5 * vowels >= len(word) and not re.search(_UNSPEAKABLE, word)


MASK = "***"
"""Replaces a secret."""

MIN_SECRET = 4
"""A known value of fewer characters is not searched for: it would cover innocent text and hide nothing."""

# From the colon on: a pattern that began with the scheme would take quadratic time on long words.
_URL: Final = r"://[^\s\"'<>]+"
_QUERY_AND_FRAGMENT: Final = r"(?s)(?<=\?)[^#]+|(?<=#).+"
_END_OF_PLACE: Final = r"[/?#]"
_TAKEN_FOR_ELSE: Final = r"[/?#@\[\]\s\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})|%00"
"""Characters that end a password for some URL parsers, or make a parser quote the password in an error."""
_WHOLE_URL: Final = r"[A-Za-z][A-Za-z0-9+.-]*://[^\s;]*"
SCHEME: Final = r"(?i)(?:bearer|basic|token)\s+"
_LIMIT: Final = r"(?i)max|min|limit|ttl|timeout|length|count|size|expir|budget"
"""What names of numbers have, such as `MAX_TOKENS`."""
_CREDENTIAL: Final = (
    r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?(?:[a-z][\w-]{0,20}\s+)?|bearer\s+)(?!\*\*\*)[^\s\"',;]+"
)
_SECRET_NAME: Final = r"(?i)(token|secret|passw|api[-_]?key|access[-_]?key|credential|authorization|cookie)"


def sounds_secret(name: str) -> bool:
    """Whether a value under this name is better not shown."""
    return re.search(_SECRET_NAME, name) is not None


_SECRET_WORDS: Final = (
    r"(?i)(?<![a-z])(?:pass(?:phrase|code|wd)?|pwd|pw|pin|pat|auth|keys?|dsn|signature|creds?|jwt|bearer|[ht]?otp"
    r"|session|sid|salt|seed|mnemonic|licen[cs]e|webhook|conn(?:ection)?[-_. ]?str(?:ing)?s?"
    r"|access[-_. ]?code)(?![a-z])|(?:pass|pwd|auth|key)(?![a-z])"
)
_HUMP: Final = r"(?<=[a-z0-9])(?=[A-Z])"


def may_name_secret(name: str) -> bool:
    """Whether a word of a name suggests a secret, as in `DB_PASS`, `dbPass` and `DBPASS`."""
    return sounds_secret(name) or re.search(_SECRET_WORDS, re.sub(_HUMP, "_", name)) is not None


_ASSIGNMENT: Final = (
    r"""(?<![\w.-])(?P<name>[A-Za-z][\w.:-]{0,63})(?P<sign>["']?\s{0,4}[=:]\s{0,4}(?:(?i:bearer|basic|token)\s{1,4})?)"""
    r"""(?!//|\$[A-Z_{(])(?P<value>"[^"]*"|'[^']*'|[^\s"'`;,&|]+)"""
)
AFTER_SCHEME: Final = r"(?i)\b(?:bearer|basic|token)\s+(?P<value>[^\s\"',;]+)"
"""What a header says after the name of its scheme."""

REFERENCE: Final = (
    r"\$\{(?:(?:input|env|file|config|command):[^}]*|\w+)(?::-)?\}"
    r"|(?<!\w)\$(?:[A-Z_][A-Z0-9_]*|[a-z_]+)\b|\{(?:env|file):[^}]*\}"
)
"""A variable that a client or a shell replaces, without a default."""


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Return the names and values, with quotes, that a text assigns, as in `Password=…;` and `"key": "…"`."""
    return ((each["name"], each["value"]) for each in re.finditer(_ASSIGNMENT, text))


def assigned_secrets(text: str) -> list[str]:
    """Return what a text assigns to names that suggest a secret."""
    named = [(name, value.strip("\"'")) for name, value in assignments(text) if may_name_secret(name)]
    return [value for name, value in named if holds_secret(name, value)]


_PLACE: Final = r"(?:(?:~|\.{1,2}|\$\{?[\w:]+\}?|%\w+%)?[\\/]|[A-Za-z]:[\\/])[^\x00-\x1f\"'`;|&<>]*"
_FILE: Final = r"[\w@./\\ ~+-]*\.(?:[cm]?[jt]s|py|sh|jar|exe|dll|json|ya?ml|toml|db|sqlite3?)"
_BASE64_PART: Final = r"(?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*\d)[A-Za-z0-9+]{6,}=*"
_MIN_BASE64_LENGTH: Final = 20
_HARMLESS: Final = (
    r"[-+]?\d{1,8}(?:\.\d{1,8})?|\d{1,5}x\d{1,5}|\d{4}-\d\d-\d\d(?:[T ][\d:.]{5,15}(?:Z|[-+]\d\d:?\d\d)?)?"
    r"|v?\d{1,4}(?:\.\d{1,8}){1,3}(?:[-+.]?[a-z]{1,8}[-.]?\d{0,8})*|[A-Z]{1,16}\d{0,2}(?:_[A-Z]{1,16}\d{0,2})+"
)
"""Numbers, dates and times, versions, and names of variables."""

_IMAGE_DIGEST: Final = r"@sha256:[0-9a-f]{64}$"
_BETWEEN_PARTS: Final = r"[\s/\\:@,;&|=()\[\]{}<>\"'*]+"


def is_path(text: str) -> bool:
    """Whether a text is a path that begins at a known place: `/`, `~`, `.`, a variable, or a drive."""
    return re.fullmatch(_PLACE, text) is not None and "//" not in text


def looks_secret(value: str) -> bool:
    """Whether a value looks like a key: it has a part that is no word, number, date, version, path or image.

    Of a URL, `secrets_of_url` has the secrets.
    """
    value = _without_references(value)
    if is_path(value):
        return _is_base64(value)
    if "://" in value or (re.fullmatch(_FILE, value) and not begins_like_a_key(value)):
        return False
    parts = re.split(_BETWEEN_PARTS, re.sub(_IMAGE_DIGEST, "", value))
    return not re.fullmatch(_HARMLESS, value) and any(looks_random(part) and not _is_harmless(part) for part in parts)


def _is_base64(path: str) -> bool:
    """Whether a path is rather a key that begins with a slash: letters of both cases and digits in most of it."""
    parts = [part for part in path.split("/") if re.fullmatch(_BASE64_PART, part) and looks_random(part)]
    lengths = list(map(len, parts))
    return max(lengths, default=0) >= _MIN_BASE64_LENGTH or (len(path) % 4 == 0 and 2 * sum(lengths) > len(path))


def _is_harmless(part: str) -> bool:
    is_word = part.isalpha() and part.isupper() and len(part) <= _MAX_CAPITALS and _is_speakable(part)
    return is_word or re.fullmatch(_HARMLESS, part) is not None


def _without_references(value: str) -> str:
    return re.sub(REFERENCE, "", re.sub(SCHEME, "", value)) if "$" in value or "{" in value else value


def holds_secret(name: str, value: str) -> bool:
    """Whether a value looks like a secret by itself, or is one by the name of its variable, header or option.

    Under a secret-sounding name a path is one only if it has a random part, and a URL only if it has credentials.
    """
    value = _without_references(value)
    if not value.strip() or (value.isdecimal() and re.search(_LIMIT, name)):
        return False
    if not may_name_secret(name):
        return looks_secret(value)
    if is_path(value) or all(map(is_path, value.split(":"))):
        return any(looks_random(part.lstrip(".")) for part in re.split(r"[/\\:]", value))
    return not re.fullmatch(_WHOLE_URL, value) or bool(secrets_of_url(value))


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
    return begin + (MASK + "@" if credentials else "") + re.sub(_QUERY_AND_FRAGMENT, MASK, rest)


def place_of_url(url: str) -> str:
    """The host and port that a URL names, and nothing of its user or password."""
    return re.split(_END_OF_PLACE, _parted(url)[2], maxsplit=1)[0]


def is_clearly_written(url: str) -> bool:
    """Whether user and password of a URL are written so that every reader takes the same for them."""
    user, _, password = _parted(url)[1].partition(":")
    return not any(re.search(_TAKEN_FOR_ELSE, part) for part in (user, password))


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
    return re.split(_END_OF_PLACE, rest, maxsplit=1)[0].rpartition("@")[0]


def mask_address(url: str) -> str:
    """As `mask_url`, with all parts of the path covered that look random: some servers take a key there."""
    begin, credentials, rest = _parted(mask_url(url))
    place, slash, rest = rest.partition("/")
    path, *more = re.split(r"([?#].*)", rest, maxsplit=1, flags=re.DOTALL)
    shown = "/".join(MASK if looks_random(unquote(part)) else part for part in path.split("/"))
    return "".join([begin, credentials and f"{credentials}@", place, slash, shown, *more])


def urls_in(text: str) -> list[str]:
    """Return the URLs in a text, without their schemes."""
    return ["x" + rest for rest in re.findall(_URL, text)]


def cover_urls(text: str, mask: Callable[[str], str] = mask_address) -> str:
    """The text with its URLs as `mask` shows them."""
    return re.sub(_URL, lambda found: mask("x" + found.group()).removeprefix("x"), text)


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
    """Return the texts under secret-sounding names among options, at any depth, without paths and plain URLs."""
    if isinstance(options, Mapping):
        return [
            text
            for key, value in options.items()
            for text in (_secrets_in(str(key), value) if sounds_secret(str(key)) else secrets_of_options(value))
        ]
    if isinstance(options, list | tuple):
        return [text for item in options for text in secrets_of_options(item)]
    return []


def _secrets_in(name: str, value: Any) -> list[str]:
    return [text for text in _texts_in(value) if holds_secret(name, text)]


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


def _query_of(url: str) -> str:
    return url.partition("#")[0].partition("?")[2]


def _texts_in(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts_in(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts_in(item)]
    return [value] if isinstance(value, str) else []


class Redactor:
    """Redacts the given secrets, credentials and the secret parts of URLs everywhere in a text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text without its secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return re.sub(_CREDENTIAL, rf"\g<1>{MASK}", cover_urls(text, mask_url))


RUNNERS: Final = re.compile(r"npx|bunx|uvx|pipx|npm|pnpm|yarn|bun|deno|uv|node|python[\d.]*|docker|podman")
"""Programs that run another program, whose name they are given."""

RUNNER_VERBS: Final = frozenset({"run", "exec", "dlx", "x", "tool"})
"""Options of a runner before that name."""

_OPTION: Final = r"(?s)(?P<name>-{1,2}[A-Za-z][\w.-]*)(?P<sign>[=:])(?P<value>.*)"
_NAMED: Final = r"(?s)(?P<name>[A-Za-z][\w.-]{0,63})(?P<sign>=(?!=)|:\s*(?!//))(?P<value>.*)"
_GLUED_PASSWORD: Final = (
    r"-p(?!a(?:ckage|ram|th)|lugin|o(?:licy|rt)|r(?:e[ft]|o))(?P<word>[^=:]{3,})|-u(?!r[il]|ser)[^=:]+:(?P<password>.+)"
)
"""As `mysql -pPASSWORD` and `curl -uUSER:PASSWORD` take it."""
_SWITCH: Final = r"--(?:no|disable|enable|skip)-"
"""How options begin that take no value."""
_PASSWORD_OPTIONS: Final = frozenset({"-p", "-k"})
_USER_OPTIONS: Final = frozenset({"-u", "--user", "--proxy-user"})
_NUMBERS: Final = r"\d{1,5}(?:[.:]\d{1,5})*(?:/(?:tcp|udp))?"
"""Ports, versions, and ids of users, which `-p` and `-u` take too."""
_SECRET_WORD: Final = r"(?i)(?:[a-z]+[-_])?(?:token|secret|passw(?:or)?d|api[-_]?key|authorization|cookie)"
"""A word without a hyphen that the next one belongs to, as in `config set token TOKEN`."""
_INSTALLERS: Final = frozenset({"npx", "bunx", "pnpm", "npm"})
"""Programs that take a package after `-p`."""
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "fish"})
_SHELL_OPTION: Final = r"-[a-z]{0,4}c"


class _Word(NamedTuple):
    """A word of a command as it may be shown, and the secrets that are not."""

    shown: str
    secrets: tuple[str, ...] = ()


def mask_command(words: Sequence[str]) -> list[str]:
    """The words of a command without its secrets; of URLs what `mask_address` shows."""
    return [word.shown for word in _read(words)]


def secrets_of_command(words: Sequence[str]) -> list[str]:
    """Return the secrets in the words of a command; of those with blanks, the last part of each too."""
    found = [part for word in _read(words) for secret in word.secrets for part in (secret, secret.rpartition(" ")[2])]
    return list(dict.fromkeys(part for part in found if part))


def _read(words: Sequence[str]) -> Iterator[_Word]:
    program = PurePath(words[0]).name if words else ""
    takes_package, option = program in _INSTALLERS, ""
    for at, word in enumerate(words):
        if at > 0 and word.startswith("-"):
            yield _option(word)
            is_alone = "=" in word or re.match(_SWITCH, word) or (takes_package and word == "-p")
            option = "" if is_alone else word
            continue
        yield _line(word) if program in _SHELLS and re.fullmatch(_SHELL_OPTION, option) else _value(option, word)
        takes_package, option = takes_package and at == 0, word if re.fullmatch(_SECRET_WORD, word) else ""


def _option(word: str) -> _Word:
    glued = re.fullmatch(_GLUED_PASSWORD, word)
    if glued is not None and not may_name_secret(word) and not re.fullmatch(_NUMBERS, word[2:]):
        return _Word(MASK, (glued["word"] or glued["password"],))
    named = re.fullmatch(_OPTION, word)
    if named is not None and not looks_secret(named["name"].lstrip("-").lower()):
        return _named(named, named["name"])
    return _Word(MASK, (word,)) if looks_secret(word.lstrip("-")) else _Word(word)


def _value(name: str, value: str) -> _Word:
    """A word, and the name of the option or variable that it belongs to, if any."""
    name = "password" if name in _PASSWORD_OPTIONS and not re.fullmatch(_NUMBERS, value) else name
    if may_name_secret(name) and holds_secret(name, value):
        return _Word(MASK, (value,))
    named = None if is_path(value) else re.fullmatch(_NAMED, value)
    if named is not None and not looks_secret(named["name"].lower()):
        is_user = name in _USER_OPTIONS and not re.fullmatch(_NUMBERS, value)
        return _named(named, "password" if is_user else named["name"])
    has_words = " -" in value or (" " in value.strip() and not is_path(value))
    return _line(value) if has_words else _text(value)


def _named(named: re.Match[str], name: str) -> _Word:
    inner = _value(name, named["value"])
    return inner._replace(shown=named["name"] + named["sign"] + inner.shown)


def _line(text: str) -> _Word:
    """A command or a text of several words, as for a shell."""
    whole = _assigned(text)
    words = list(_read(whole.shown.split()))
    secrets = (*whole.secrets, *(each for word in words for each in word.secrets if MASK not in each))
    return _Word(" ".join(word.shown for word in words) if secrets else text, secrets)


def _text(text: str) -> _Word:
    """A word without blanks."""
    found = _assigned(text)
    return _Word(MASK, (text, *found.secrets)) if looks_secret(found.shown) else found


def _assigned(text: str) -> _Word:
    secrets = [*assigned_secrets(text), *(secret for url in urls_in(text) for secret in secrets_of_url(url))]
    return _Word(cover_urls(re.sub(_ASSIGNMENT, _mask_assigned, text)), tuple(secrets))


def _mask_assigned(found: re.Match[str]) -> str:
    is_secret = may_name_secret(found["name"]) and holds_secret(found["name"], found["value"].strip("\"'"))
    return found["name"] + found["sign"] + MASK if is_secret else found.group()
