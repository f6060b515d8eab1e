"""Refreshes and revokes tokens at the authorization server. All functions block; run them in a thread."""

import asyncio
import base64
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlsplit

from riglm.adapters.mcp.oauth.accounts import Account, AccountFile
from riglm.domain.access import is_protected
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import UpstreamSpec

_TIMEOUT_SECONDS: Final = 20.0
_MAX_SCOPE_LENGTH: Final = 4096
_REJECTED: Final = frozenset({"invalid_grant", "bad_refresh_token"})
"""Errors after which only a new sign-in helps."""

_CLIENT_REFUSED: Final = frozenset({"invalid_client", "unauthorized_client"})

_log: Final = logging.getLogger("riglm.upstream")


class _TokenResponse:
    """A response of a token endpoint, RFC 6749; some servers send errors with status 200.

    Members of an unknown form are ignored: the server may accept the previous tokens no more.
    """

    def __init__(self, body: bytes) -> None:
        try:
            members = json.loads(body)
        except (ValueError, RecursionError):
            members = None
        self._members = members if isinstance(members, dict) else {}

    def text(self, member: str) -> str:
        """Return a member, empty if it is absent."""
        value = self._members.get(member)
        return value if isinstance(value, str) else ""

    @property
    def expires_in(self) -> float | None:
        """Seconds; None if the server did not report an expiry. Some servers report 0 for tokens that do not expire."""
        try:
            seconds = float(self._members["expires_in"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return seconds if 0 < seconds < math.inf else None


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
        renewed = _refresh(_configured(account, spec)) if account and not spec.is_unattended else _obtain(spec)
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


def revoke(account: Account) -> bool:
    """Revoke the tokens; return False if the authorization server cannot do that or did not respond."""
    hosts = {urlsplit(url).netloc for url in (account.issuer, account.token_endpoint)}
    if urlsplit(account.revocation_endpoint).netloc not in hosts:
        return False
    token, kind = account.refresh_token or account.access_token, "refresh" if account.refresh_token else "access"
    try:
        status, _ = _post(account, account.revocation_endpoint, {"token": token, "token_type_hint": f"{kind}_token"})
    except RiglmError:
        return False
    return status < 300


def _needs_renewal(account: Account | None, spec: UpstreamSpec, refused: str) -> bool:
    if account is None:
        return spec.is_unattended
    if spec.is_unattended:
        client = spec.oauth
        is_other = (account.client_id, account.issuer) != (client.id, client.issuer)
        return is_other or account.access_token == refused or account.is_due
    return bool(account.refresh_token) and (account.access_token == refused or account.is_due)


def _obtain(spec: UpstreamSpec) -> Account:
    from riglm.adapters.mcp.oauth.unattended import obtain_tokens  # noqa: PLC0415

    return asyncio.run(obtain_tokens(spec))


def _configured(account: Account, spec: UpstreamSpec) -> Account:
    """Return the account with the client's secret of the configuration, which may be newer."""
    client = spec.oauth
    is_same = client.secret and client.id == account.client_id
    return replace(account, client_secret=client.secret) if is_same else account


def _refresh(account: Account) -> Account:
    """Return the account with new tokens, or without a refresh token if that was rejected."""
    form = {"grant_type": "refresh_token", "refresh_token": account.refresh_token}
    if account.resource:
        form["resource"] = account.resource
    status, body = _post(account, account.token_endpoint, form)
    granted = _TokenResponse(body)
    if status < 300 and (access_token := granted.text("access_token")):
        return account.with_tokens(
            access_token,
            refresh_token=granted.text("refresh_token"),
            scope=granted.text("scope"),
            expires_in=granted.expires_in,
        )
    error = granted.text("error")
    if error not in _REJECTED:
        hint = " — fix: check `auth.client_secret`, or sign in again" if error in _CLIENT_REFUSED else ""
        raise RiglmError(f"{account.issuer} answered HTTP {status} without a token{hint}")
    _log.warning("refresh token rejected; sign in again", extra={"upstream": account.server})
    return replace(account, refresh_token="")


def _post(account: Account, endpoint: str, form: Mapping[str, str]) -> tuple[int, bytes]:
    """Send a form with the client's authentication; return the status and the body. Redirects are not followed.

    Raises:
        RiglmError: the endpoint does not use https, or there was no complete response in time.
    """
    if not is_protected(endpoint):
        raise RiglmError(f"{account.issuer} has an endpoint without https, to which no secrets can be sent")
    import httpx2  # noqa: PLC0415  # only signed-in servers need it

    from riglm.adapters.mcp.oauth.response_limit import UNCOMPRESSED, limit_response  # noqa: PLC0415

    form = {**form, "client_id": account.client_id}
    headers = {"Accept": "application/json", **UNCOMPRESSED}
    if account.client_secret and account.auth_method == "client_secret_basic":
        credentials = f"{quote(account.client_id, safe='')}:{quote(account.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    elif account.client_secret and account.auth_method == "client_secret_post":
        form["client_secret"] = account.client_secret
    hooks = {"response": [limit_response]}

    async def respond() -> httpx2.Response:
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),  # httpx2 limits only the time between two chunks
            httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, event_hooks=hooks) as http,
        ):
            return await http.post(endpoint, data=form, headers=headers)

    try:
        response = asyncio.run(respond())
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        raise RiglmError(f"{account.issuer} cannot be reached: {type(error).__name__}") from None
    return response.status_code, response.content
