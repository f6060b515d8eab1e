"""Accounts at OAuth-protected servers, with their tokens, in one encrypted file."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from riglm.adapters.private_files import replace_private_file
from riglm.domain.errors import RiglmError, failed_write
from riglm.domain.upstream import AccountKey

MAX_LEEWAY_SECONDS: Final = 60.0
"""Maximum time between the refresh of an access token and its expiry."""

_LEEWAY_RATIO: Final = 0.2
_HEADER: Final = b"riglm accounts 1\n"
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The tokens of one server, and what is needed to refresh and revoke them. Its repr has no secrets.

    Times are in seconds since the epoch, None if the server did not report an expiry. `resource` is the RFC 8707
    resource indicator, empty if the server does not take one. `principal` is the caller whose account it is, empty for
    one that all callers use. `wanted_scope` is what the server required for a call in
    addition to `scope`.
    """

    server: str
    url: str = field(repr=False)
    principal: str = ""
    issuer: str
    token_endpoint: str
    revocation_endpoint: str = ""
    resource: str = ""
    client_id: str
    client_secret: str = field(default="", repr=False)
    auth_method: str = ""
    scope: str = ""
    wanted_scope: str = ""
    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    refresh_at: float | None = None
    expires_at: float | None = None

    @property
    def key(self) -> AccountKey:
        """What identifies it."""
        return self.server, self.url, self.principal

    @property
    def is_due(self) -> bool:
        """True if the access token expires within a minute, or has expired."""
        return self.refresh_at is not None and time.time() >= self.refresh_at

    @property
    def step_up_scopes(self) -> Sequence[str]:
        """The granted and the wanted scopes if there are wanted ones, which the next sign-in requests."""
        return tuple(dict.fromkeys(f"{self.scope} {self.wanted_scope}".split())) if self.wanted_scope else ()

    def with_tokens(
        self, access_token: str, *, refresh_token: str | None, scope: str | None, expires_in: float | None
    ) -> "Account":
        """Return the account with new tokens; what the response omits stays as it is.

        Raises:
            RiglmError: the access token cannot be sent.
        """
        if not re.fullmatch(r"[!-~]+", access_token):
            raise RiglmError(f"{self.issuer} sent an access token with characters that a header cannot have")
        now = time.time()
        leeway = min(MAX_LEEWAY_SECONDS, _LEEWAY_RATIO * (expires_in or 0))
        return replace(
            self,
            access_token=access_token,
            refresh_token=refresh_token or self.refresh_token,
            scope=scope or self.scope,
            refresh_at=None if expires_in is None else now + expires_in - leeway,
            expires_at=None if expires_in is None else now + expires_in,
        )


class AccountFile:
    """A file of accounts, readable by its owner alone and encrypted with AES-256-GCM.

    Args:
        path: the file, which need not exist.
        key: returns the 32 bytes of the key.
        lock: holds a file, which it creates, against all other processes and threads; it waits for them.
    """

    def __init__(
        self, path: Path, key: Callable[[], bytes], lock: Callable[[Path], AbstractContextManager[None]]
    ) -> None:
        self.path = path
        self._key = key
        self._lock = lock

    def list_accounts(self) -> Sequence[Account]:
        """Return all accounts, by server.

        Raises:
            RiglmError: the file cannot be read or decrypted.
        """
        try:
            stored = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise RiglmError(
                f"{self.path} cannot be read ({error.strerror}) — fix: make it readable for you"
            ) from error
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # only signed-in servers need it
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        body = stored.removeprefix(_HEADER)
        try:
            text = AESGCM(self._key()).decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _HEADER)
            return msgspec.json.decode(text, type=tuple[Account, ...])
        except (InvalidTag, ValueError) as error:
            raise RiglmError(
                f"{self.path} cannot be decrypted: it is damaged, or riglm.key was replaced — fix: restore riglm.key, "
                "or delete the file and sign in again"
            ) from error

    def check(self) -> None:
        """Write the file as it is, to find out before a sign-in whether its account can be stored.

        Raises:
            RiglmError: as `save`.
        """
        self._change(("", "", ""), None)

    def find(self, key: AccountKey) -> Account | None:
        """Return the account with this key, None if there is none.

        Raises:
            RiglmError: as `list_accounts`.
        """
        return next((each for each in self.list_accounts() if each.key == key), None)

    def save(self, account: Account) -> None:
        """Add an account, or replace the one with its key.

        Raises:
            RiglmError: the file cannot be read or written.
        """
        self._change(account.key, account)

    def delete(self, account: Account) -> None:
        """Delete an account.

        Raises:
            RiglmError: as `save`.
        """
        self._change(account.key, None)

    @contextlib.contextmanager
    def locked(self, key: AccountKey) -> Iterator[None]:
        """Keep other threads and processes from changing the tokens of an account.

        Raises:
            RiglmError: the directory of the file cannot be written.
        """
        with self._held(f"-{sha256(' '.join(key).rstrip().encode()).hexdigest()[:16]}"):
            yield

    def _change(self, key: AccountKey, account: Account | None) -> None:
        with self._held(""):
            kept = [each for each in self.list_accounts() if each.key != key]
            try:
                self._write(sorted([*kept, account] if account else kept, key=lambda each: each.key))
            except OSError as error:
                raise self._unwritable(error) from error

    @contextlib.contextmanager
    def _held(self, suffix: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(self._lock(self.path.with_name(f"{self.path.name}{suffix}.lock")))
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def _unwritable(self, error: OSError) -> RiglmError:
        return RiglmError(failed_write(self.path, error, "make its directory writable for you"))

    def _write(self, accounts: Sequence[Account]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        nonce = os.urandom(_NONCE_BYTES)
        body = _HEADER + nonce + AESGCM(self._key()).encrypt(nonce, msgspec.json.encode(accounts), _HEADER)
        replace_private_file(self.path, body)
