"""Where the spools of a store are, and which process holds a file."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from riglm.adapters.private_files import lock
from riglm.domain.errors import ConfigurationError


class LockHeldError(Exception):
    """Another process holds the file; `words` are what it wrote into it."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class FileLock:
    """A hold on the file at `path`, which is made when it is not there. The kernel lets go when the process ends."""

    def __init__(self, path: Path, words: str = "") -> None:
        """Take hold, and write `words` into the file for others to read.

        Raises:
            Held: another process holds it.
            OSError: the file cannot be made, locked or written.
        """
        self.path = path
        self._descriptor = _claimed(path)
        try:
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.write(self._descriptor, words.encode())
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock; the file stays."""
        with suppress(OSError):
            os.close(self._descriptor)

    def remove(self) -> None:
        """Remove the file, then release the lock, so that no process can take it in between."""
        with suppress(OSError):
            self.path.unlink()
        self.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the file; it is not made."""
    with suppress(OSError), path.open("rb+") as file:
        try:
            lock(file.fileno())
        except OSError:
            return True
    return False


def _claimed(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock(descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(descriptor)):
                    return descriptor
        except BlockingIOError:
            words = os.pread(descriptor, 4096, 0) if hasattr(os, "pread") else b""
            os.close(descriptor)
            raise LockHeldError(words.decode(errors="replace")) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed the file in between: that was another file


def try_lock(path: Path) -> Callable[[], None] | None:
    """Take hold of the file; return what releases it, None if another process holds it."""
    try:
        return FileLock(path).release
    except LockHeldError:
        return None


_PORT: Final = ":5432"


def spool_directory(base: Path, store: str) -> Path:
    """The directory below `base` for the spools of a store, which is a file or a URL, however that is spelled."""
    name = _database(store) if "://" in store else os.path.realpath(store)
    return base / sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _database(url: str) -> str:
    """The servers and their ports, the database, and the schema where the URL chooses one: not who asks, nor how."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    user, _, places = parts.netloc.rpartition("@")
    servers = asked.get("host") or asked.get("hostaddr") or unquote(places)
    servers += f":{asked['port']}" if "port" in asked else ""
    database = asked.get("dbname") or unquote(parts.path.strip("/"))
    database = database or asked.get("user") or unquote(user.partition(":")[0])  # as PostgreSQL's client has it
    options = asked.get("options", "")
    return repr((servers.removesuffix(_PORT), database, options if "search_path" in options else ""))


LOCK: Final = "serve.lock"


@contextmanager
def sole_server(directory: Path, address: str) -> Iterator[None]:
    """Hold the data directory for a server at `address` while the block runs; a directory that cannot be used is not.

    Raises:
        ConfigurationError: another server holds it.
    """
    with ExitStack() as stack:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.callback(FileLock(directory / LOCK, f"process {os.getpid()}, {address}").remove)
        except LockHeldError as other:
            raise ConfigurationError(
                f"another riglm serve ({other.words or 'just starting'}) uses the data directory {directory} — fix: "
                "end that one, or set a separate directory for this one in RIGLM_DATA_DIR; the two may share the "
                "database by `storage.path` or `storage.url`"
            ) from None
        except OSError:
            pass  # an unwritable directory is reported by the first write
        yield
