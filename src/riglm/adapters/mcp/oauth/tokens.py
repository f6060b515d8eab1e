"""Refreshes and revokes tokens at the authorization server. All functions block; run them in a thread."""

import base64
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from riglm.adapters.mcp.oauth.accounts import Account, AccountFile
from riglm.domain.errors import RiglmError

if TYPE_CHECKING:
    import httpx2

_TIMEOUT_SECONDS: Final = 20.0
_REJECTED: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "bad_refresh_token"})
"""Errors after which only a new sign-in helps."""

_log: Final = logging.getLogger("riglm.upstream")


class _TokenResponse(msgspec.Struct):
    """A response of a token endpoint, RFC 6749; some servers send errors with status 200."""

    access_token: str = ""
    refresh_token: str | None = None
    scope: str | None = None
    expires_in: int | None = None
    error: str = ""


def current_account(accounts: AccountFile, server: str, url: str, used: str) -> Account | None:
    """Return the account of a server with a token other than `used`, refreshed if necessary.

    If there is no such token, the account is returned as it is stored; None if there is none. Only one thread of all
    processes refreshes the tokens of a server at a time; the others then read what it stored.

    Raises:
        RiglmError: the authorization server cannot be reached, or the accounts cannot be read.
    """
    account = accounts.find(server, url)
    if not _needs_refresh(account, used):
        return account
    with accounts.locked(server, url):
        account = accounts.find(server, url)
        if account is None or not _needs_refresh(account, used):
            return account
        refreshed = _refresh(account)
        accounts.save(refreshed)
    return refreshed


def revoke(account: Account) -> bool:
    """Revoke the tokens; return False if the authorization server cannot do that or did not respond."""
    import httpx2  # noqa: PLC0415  # only signed-in servers need it

    if not account.revocation_endpoint:
        return False
    token, kind = account.refresh_token or account.access_token, "refresh" if account.refresh_token else "access"
    try:
        response = _post(account, account.revocation_endpoint, {"token": token, "token_type_hint": f"{kind}_token"})
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False
    return response.is_success


def _needs_refresh(account: Account | None, used: str) -> bool:
    return account is not None and bool(account.refresh_token) and (account.access_token == used or account.is_due)


def _refresh(account: Account) -> Account:
    """Return the account with new tokens, or without a refresh token if that was rejected."""
    import httpx2  # noqa: PLC0415

    form = {"grant_type": "refresh_token", "refresh_token": account.refresh_token}
    if account.resource:
        form["resource"] = account.resource
    granted = _TokenResponse()
    try:
        response = _post(account, account.token_endpoint, form)
        granted = msgspec.json.decode(response.content, type=_TokenResponse, strict=False)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise RiglmError(f"{account.issuer} cannot be reached: {type(error).__name__}") from None
    except msgspec.MsgspecError:
        pass  # neither a token nor an error
    if response.is_success and granted.access_token:
        return account.with_tokens(
            granted.access_token,
            refresh_token=granted.refresh_token,
            scope=granted.scope,
            expires_in=granted.expires_in,
        )
    if granted.error not in _REJECTED:
        raise RiglmError(f"{account.issuer} answered HTTP {response.status_code} without a token")
    _log.warning("refresh token rejected; sign in again", extra={"upstream": account.server})
    return replace(account, refresh_token="")


def _post(account: Account, endpoint: str, form: Mapping[str, str]) -> "httpx2.Response":
    """Send a form with the client's authentication; redirects are not followed."""
    import httpx2  # noqa: PLC0415

    form, headers = {**form, "client_id": account.client_id}, {"Accept": "application/json"}
    if account.client_secret and account.auth_method == "client_secret_basic":
        credentials = f"{quote(account.client_id, safe='')}:{quote(account.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    elif account.client_secret and account.auth_method == "client_secret_post":
        form["client_secret"] = account.client_secret
    return httpx2.post(endpoint, data=form, headers=headers, timeout=_TIMEOUT_SECONDS)
