"""Refreshes, revokes and reads tokens of the authorization server. Functions that send block; run them in a thread."""

import asyncio
import base64
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote, urlsplit

from riglm.adapters.mcp.oauth.accounts import Account, AccountFile
from riglm.domain.access import is_protected, is_same_issuer
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import UpstreamSpec

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


_TIMEOUT_SECONDS: Final = 20.0
_MAX_SCOPE_LENGTH: Final = 4096
_REJECTED: Final = frozenset({"invalid_grant", "bad_refresh_token"})
"""Errors with which a server reports for certain that it accepts the refresh token no more."""

_CLIENT_REFUSED: Final = frozenset({"invalid_client", "unauthorized_client"})

_log: Final = logging.getLogger("riglm.upstream")


def current_account(accounts: AccountFile, spec: UpstreamSpec, refused: str) -> Account | None:
    """Return the account of a server with a token other than `refused`, renewed if that or its expiry requires it.

    If there is no such token, the account is returned as it is stored; None if there is none. Only one thread of all
    processes renews the tokens of a server at a time; the others then read what it stored.

    Tokens that cannot be stored are returned with a warning in the log: the server may accept the old ones no more.

    Raises:
        RiglmError: the authorization server cannot be reached or refuses the client, or the accounts cannot be read.
    """
    account = accounts.find(spec.account_key)
    if not _needs_renewal(account, spec, refused):
        return account
    with accounts.locked(spec.account_key):
        account = accounts.find(spec.account_key)
        if not _needs_renewal(account, spec, refused):
            return account
        renewed = _refresh(_configured(account, spec), spec) if account and not spec.is_unattended else _obtain(spec)
        try:
            accounts.save(renewed)
        except RiglmError as error:
            _log.warning("renewed tokens not stored", extra={"upstream": spec.name, "reason": str(error)})
    return renewed


def add_wanted_scope(accounts: AccountFile, spec: UpstreamSpec, used: str, scope: str) -> Account | None:
    """Store for the next sign-in that the access token `used` lacks `scope`; return the account of the server.

    Raises:
        RiglmError: the accounts cannot be read or written.
    """
    with accounts.locked(spec.account_key):
        account = accounts.find(spec.account_key)
        if account is not None and account.access_token == used:
            wanted = " ".join(dict.fromkeys(f"{account.wanted_scope} {scope}".split()))
            if account.wanted_scope != wanted and len(wanted) <= _MAX_SCOPE_LENGTH:
                accounts.save(replace(account, wanted_scope=wanted))
    return account


def revoke(account: Account) -> str:
    """Revoke the tokens; return why they stay valid, or nothing."""
    hosts = {urlsplit(url).netloc for url in (account.issuer, account.token_endpoint)}
    if urlsplit(account.revocation_endpoint).netloc not in hosts:
        return "the authorization server has no revocation endpoint"
    token, kind = account.refresh_token or account.access_token, "refresh" if account.refresh_token else "access"
    form = {"token": token, "token_type_hint": f"{kind}_token"}
    try:
        status, _, _ = _post(account, account.revocation_endpoint, form, "revoke the tokens at the server's site")
    except RiglmError as error:
        return str(error)
    return "" if status < 300 else f"{account.issuer} answered HTTP {status}"


def _needs_renewal(account: Account | None, spec: UpstreamSpec, refused: str) -> bool:
    if account is None:
        return spec.is_unattended
    if spec.is_unattended:
        client = spec.oauth
        is_other = account.client_id != client.id or not is_same_issuer(account.issuer, client.issuer)
        return is_other or account.access_token == refused or account.is_due
    return bool(account.refresh_token) and (account.access_token == refused or account.is_due)


def _obtain(spec: UpstreamSpec) -> Account:
    from riglm.adapters.mcp.oauth.unattended import obtain_tokens  # noqa: PLC0415

    return asyncio.run(obtain_tokens(spec))


def _configured(account: Account, spec: UpstreamSpec) -> Account:
    """Return the account with the client's secret of the configuration, which may be newer.

    The secret is sent only to the issuer that is configured, or else to the one that the user confirmed for it.
    """
    client = spec.oauth
    is_of_issuer = is_same_issuer(account.issuer, client.issuer) if client.issuer else bool(account.client_secret)
    is_same = client.secret and client.id == account.client_id and is_of_issuer
    return replace(account, client_secret=client.secret) if is_same else account


def _refresh(account: Account, spec: UpstreamSpec) -> Account:
    """Return the account with new tokens, or without a refresh token if that was rejected."""
    form = {"grant_type": "refresh_token", "refresh_token": account.refresh_token}
    if account.resource:
        form["resource"] = account.resource
    sign_in = f"run `{spec.sign_in_command}`"
    try:
        granted = read_token_response(account.issuer, *_post(account, account.token_endpoint, form, sign_in))
    except TokenRefusedError as refusal:
        if refusal.is_temporary:
            raise
        if refusal.error in _REJECTED:
            _log.warning("refresh token rejected; sign in again", extra={"upstream": account.server})
            return replace(account, refresh_token="")
        if refusal.error in _CLIENT_REFUSED:
            sign_in = f"check `auth.client_secret`, or {sign_in}"
        words = str(refusal)
        raise RiglmError(f"{words}, or {sign_in}" if " — fix: " in words else f"{words} — fix: {sign_in}") from None
    return account.with_tokens(
        granted.access_token, refresh_token=granted.refresh_token, scope=granted.scope, expires_in=granted.expires_in
    )


def _post(account: Account, endpoint: str, form: Mapping[str, str], fix: str) -> tuple[int, str, bytes]:
    """Send a form with the client's authentication; return the status, the media type and the body.

    `fix` is what helps if the endpoint has moved.

    Raises:
        RiglmError: the endpoint does not use https or redirects, or there was no complete response in time.
    """
    if not is_protected(endpoint):
        raise RiglmError(f"{account.issuer} has an endpoint without https, to which no secrets can be sent")
    import httpx2  # noqa: PLC0415  # only signed-in servers need it

    from riglm.adapters.mcp.oauth.response_limit import post_form  # noqa: PLC0415

    form, headers = {**form, "client_id": account.client_id}, {}
    if account.client_secret and account.auth_method == "client_secret_basic":
        credentials = f"{quote(account.client_id, safe='')}:{quote(account.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    elif account.client_secret and account.auth_method == "client_secret_post":
        form["client_secret"] = account.client_secret
    posting = post_form(endpoint, form, _TIMEOUT_SECONDS, fix, headers)
    try:
        response = asyncio.run(asyncio.wait_for(posting, _TIMEOUT_SECONDS))
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        raise RiglmError(f"{account.issuer} cannot be reached: {type(error).__name__}") from None
    return response.status_code, response.headers.get("content-type", ""), response.content
