"""Files that only their owner can read, among them the secret key of keyed hashes, and locks of files."""

import contextlib
import hashlib
import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from riglm.domain.errors import ConfigurationError, RiglmError, full_disk, is_full_disk
from riglm.domain.hashing import KEY_BYTES, KeyedHasher

if sys.platform == "win32":
    import msvcrt

    def lock(descriptor: int, *, waits: bool = False) -> None:
        """Lock a file, for which `waits` waits ten seconds; BlockingIOError if another process has it."""
        os.lseek(descriptor, _FAR, os.SEEK_SET)  # a locked region cannot be read: lock one that holds nothing
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError from None
else:
    import fcntl

    def lock(descriptor: int, *, waits: bool = False) -> None:
        """Lock a file; BlockingIOError if another process has it, unless this `waits` for it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)


_FAR: Final = 1 << 40
_RETRY_SECONDS: Final = 0.02
_log: Final = logging.getLogger("riglm")


@contextlib.contextmanager
def wait_for_lock(path: Path, seconds: float = 60.0) -> Iterator[None]:
    """Hold a file, which is made if it is not there, while the block runs.

    Raises:
        RiglmError: another process holds it all the time.
        OSError: it cannot be made or locked.
    """
    until = time.monotonic() + seconds
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600)) as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                lock(file.fileno())
                break
            if time.monotonic() > until:
                raise RiglmError(
                    f"{path} is held by a different process for over {seconds:g} s — fix: end that process"
                )
            time.sleep(_RETRY_SECONDS)
        yield


def load_hasher(key: SecretStr | None, store_kind: str, store_path: Path) -> KeyedHasher:
    """Return the hasher for the configured key, else for the key in the directory of the store.

    A store in memory, and a key file that cannot be used, get a key that ends with the process.
    """
    if key is not None:
        return KeyedHasher(hashlib.sha256(key.get_secret_value().encode()).digest())
    if store_kind != "memory":
        try:
            return KeyedHasher(load_or_create_key(store_path.with_name("riglm.key")))
        except ConfigurationError as error:
            _log.warning("%s; until the next start the key is one in memory, and its hashes match no others", error)
    return KeyedHasher(os.urandom(KEY_BYTES))


def load_account_key(accounts: Path) -> bytes:
    """Return the key that encrypts the accounts, derived from `riglm.key` in the same directory."""
    return KeyedHasher(load_or_create_key(accounts.with_name("riglm.key"))).derived_key("accounts")


def load_or_create_key(path: Path) -> bytes:
    """The key in the file at `path`; when there is none, a new random one, readable by its owner alone.

    Processes that start at once agree on one key. Raises `ConfigurationError` when the file cannot be read or made,
    belongs to another user, or does not hold a key.
    """
    try:
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            _create(path)
            key = path.read_bytes()
        _require_own(path)
    except OSError as error:
        if is_full_disk(error):
            raise ConfigurationError(f"the hashing key {path} cannot be made: {full_disk(path, error)}") from error
        raise ConfigurationError(
            f"the hashing key {path} cannot be read or made ({error.strerror}): make the file and its directory "
            "readable and writable for the user who runs riglm, or name another directory in RIGLM_DATA_DIR or "
            "storage.path"
        ) from error
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"the hashing key {path} has {len(key)} bytes, not {KEY_BYTES}: restore it from a copy, or remove it to "
            "start with a new one (hashes stored so far will match no later ones)"
        )
    return key


def _require_own(path: Path) -> None:
    """Refuse a key, or a symbolic link, that a user put there who owns neither the process nor the directory."""
    owners = {path.lstat().st_uid, path.stat().st_uid}
    if os.name == "posix" and not owners <= {0, os.geteuid(), path.parent.stat().st_uid}:
        raise ConfigurationError(
            f"the hashing key {path} belongs to another user: remove it, and make its directory writable for the user "
            "who runs riglm only"
        )


def _create(path: Path) -> None:
    """Write a new key, unless another process is faster: the first writer wins."""
    with private_draft(path, secrets.token_bytes(KEY_BYTES)) as draft, contextlib.suppress(FileExistsError):
        os.link(draft, path)


def replace_private_file(path: Path, content: bytes) -> None:
    """Replace a file: readers see the old content or the new one."""
    with private_draft(path, content) as draft:
        draft.replace(path)


@contextlib.contextmanager
def private_draft(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a temporary file with mode 0600 and this content, which is removed if it is still there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
