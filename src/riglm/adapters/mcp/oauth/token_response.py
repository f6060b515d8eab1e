"""Reads the responses of token endpoints, RFC 6749 section 5."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from riglm.domain.errors import RiglmError

_MAX_EXPIRES_IN: Final = 3.0e9
"""Tokens that are valid for longer, 95 years, count as tokens without an expiry."""

_MAX_TEXT_LENGTH: Final = 200
_TEMPORARY_ERRORS: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
_TEMPORARY_STATUSES: Final = frozenset({408, 425, 429})
_TOKEN: Final = re.compile(r"[ -~]+")
_OTHER_TOKEN_TYPES: Final = frozenset({"dpop", "mac", "pop"})
"""Types that need a proof in each request. Some servers send `user` for bearer tokens; an assertion has `N_A`."""


class TokenRefusedError(RiglmError):
    """Raised for a response without a usable token.

    `error` is the code that the server sent, or empty. With `is_temporary`, the same request may succeed later.
    """

    def __init__(self, message: str, status: int, error: str) -> None:
        super().__init__(message)
        self.error = error
        self.is_temporary = status >= 500 or status in _TEMPORARY_STATUSES or error in _TEMPORARY_ERRORS


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenResponse:
    """Granted tokens. What the response omits is empty; `expires_in` is in seconds, None without an expiry."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    scope: str = ""
    expires_in: float | None = None

    def to_json(self) -> bytes:
        """Return the response in the form that the MCP SDK accepts, which takes whole seconds."""
        members = {
            "access_token": self.access_token,
            "token_type": "Bearer",
            "expires_in": None if self.expires_in is None else max(1, int(self.expires_in)),
            "refresh_token": self.refresh_token or None,
            "scope": self.scope or None,
        }
        return json.dumps(members).encode()


def read_token_response(place: str, status: int, media_type: str, body: bytes) -> TokenResponse:
    """Return the tokens in a response of `place`, the authorization server.

    Members of an unknown form are ignored: the server may accept the previous tokens no more.

    Raises:
        TokenRefusedError: there is no usable access token. The message has no body, which may contain tokens.
    """
    members = _read_object(body)
    if members is None and status < 300:
        form = media_type.partition(";")[0].strip()[:_MAX_TEXT_LENGTH] or "a body without a media type"
        if form.endswith("json"):
            words = f"{place} answered the token request with {form} that is invalid, too deeply nested or no object"
            raise TokenRefusedError(words, status, "")
        raise TokenRefusedError(
            f"{place} answered the token request with {form}, and not with a JSON object"
            " — fix: have it answer with application/json, as RFC 6749 requires",
            status,
            "",
        )
    members, error = members or {}, refusal_of(body)
    access_token = _text(members.get("access_token"))
    if status >= 300 or error or not access_token:
        code = _text(members.get("error"))
        raise TokenRefusedError(f"{place} answered HTTP {status}{error or ' without a token'}", status, code)
    kind = _text(members.get("token_type")).lower()
    if kind in _OTHER_TOKEN_TYPES:
        raise TokenRefusedError(f"{place} issued a token of the type {kind}, which riglm cannot use", status, "")
    refresh_token = _text(members.get("refresh_token"))
    if not _TOKEN.fullmatch(access_token) or not _TOKEN.fullmatch(refresh_token or access_token):
        raise TokenRefusedError(f"{place} issued a token with characters that RFC 6749 does not allow", status, "")
    scope = _words(members.get("scope"))
    return TokenResponse(
        access_token=access_token,
        refresh_token=refresh_token,
        scope=scope if scope.isprintable() else "",
        expires_in=_seconds(members.get("expires_in")),
    )


def refusal_of(body: bytes) -> str:
    """Return the error in a response of an authorization server, to append to a sentence; empty if there is none."""
    members = _read_object(body) or {}
    error = _text(members.get("error"))
    words = [error, _text(members.get("error_description"))] if error else []
    return "".join(f": {each[:_MAX_TEXT_LENGTH]}" for each in map(_printable, words) if each)


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def _read_object(body: bytes) -> Mapping[str, Any] | None:
    """Return a JSON object, its numbers as text; None if the body is none."""
    try:
        found = json.loads(body, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _words(value: object) -> str:
    return " ".join(filter(None, map(_text, value))) if isinstance(value, list) else _text(value)


def _seconds(value: object) -> float | None:
    """Return a lifetime; None if there is none. Some servers report 0 for tokens that do not expire."""
    try:
        seconds = float(_text(value))
    except ValueError:
        return None
    return seconds if 0 < seconds <= _MAX_EXPIRES_IN else None
