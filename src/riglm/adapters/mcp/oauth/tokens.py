"""Refreshes and revokes tokens at the authorization server. All functions block; run them in a thread."""

import asyncio
import base64
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from riglm.adapters.mcp.oauth.accounts import Account, AccountFile
from riglm.domain.access import is_protected
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import UpstreamSpec

_TIMEOUT_SECONDS: Final = 20.0
_MAX_RESPONSE_BYTES: Final = 1 << 20
_MAX_SCOPE_LENGTH: Final = 4096
_REJECTED: Final = frozenset({"invalid_grant", "bad_refresh_token"})
"""Errors after which only a new sign-in helps."""

_CLIENT_REFUSED: Final = frozenset({"invalid_client", "unauthorized_client"})

_log: Final = logging.getLogger("riglm.upstream")


class _TokenResponse(msgspec.Struct):
    """A response of a token endpoint, RFC 6749; some servers send errors with status 200."""

    access_token: str = ""
    refresh_token: str | None = None
    scope: str | None = None
    expires_in: float | None = None
    error: str = ""


def current_account(accounts: AccountFile, spec: UpstreamSpec, used: str) -> Account | None:
    """Return the account of a server with a token other than `used`, renewed if necessary.

    If there is no such token, the account is returned as it is stored; None if there is none. Only one thread of all
    processes renews the tokens of a server at a time; the others then read what it stored.

    Tokens that cannot be stored are returned with a warning in the log: the server may accept the old ones no more.

    Raises:
        RiglmError: the authorization server cannot be reached or refuses the client, or the accounts cannot be read.
    """
    account = accounts.find(spec.account_key)
    if not _needs_renewal(account, spec, used):
        return account
    with accounts.locked(spec.account_key):
        account = accounts.find(spec.account_key)
        if not _needs_renewal(account, spec, used):
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


def _needs_renewal(account: Account | None, spec: UpstreamSpec, used: str) -> bool:
    if account is None:
        return spec.is_unattended
    if spec.is_unattended:
        client = spec.oauth
        is_other = (account.client_id, account.issuer) != (client.id, client.issuer)
        return is_other or account.access_token == used or account.is_due
    return bool(account.refresh_token) and (account.access_token == used or account.is_due)


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
    try:
        granted = msgspec.json.decode(body, type=_TokenResponse, strict=False)
    except msgspec.MsgspecError:
        granted = _TokenResponse()
    if status < 300 and granted.access_token:
        return account.with_tokens(
            granted.access_token,
            refresh_token=granted.refresh_token,
            scope=granted.scope,
            expires_in=granted.expires_in,
        )
    if granted.error not in _REJECTED:
        hint = " — fix: check `auth.client_secret`, or sign in again" if granted.error in _CLIENT_REFUSED else ""
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

    form = {**form, "client_id": account.client_id}
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if account.client_secret and account.auth_method == "client_secret_basic":
        credentials = f"{quote(account.client_id, safe='')}:{quote(account.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    elif account.client_secret and account.auth_method == "client_secret_post":
        form["client_secret"] = account.client_secret

    async def respond() -> tuple[int, bytes]:
        body = b""
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),  # httpx2 limits only the time between two chunks
            httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS) as http,
            http.stream("POST", endpoint, data=form, headers=headers) as response,
        ):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _MAX_RESPONSE_BYTES:
                    raise RiglmError(f"{account.issuer} sent a response of more than {_MAX_RESPONSE_BYTES} bytes")
        return response.status_code, body

    try:
        return asyncio.run(respond())
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        raise RiglmError(f"{account.issuer} cannot be reached: {type(error).__name__}") from None
