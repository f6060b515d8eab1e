"""Where the spools of a store are: what was recorded for one store must not come into another."""

from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from riglm.domain.secret import sounds_secret


def spool_directory(base: Path, store: str) -> Path:
    """The directory below `base` for the spools of a store: that of its file, or its URL whatever its password is."""
    return base / sha256(_without_password(store).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _without_password(store: str) -> str:
    if "://" not in store:
        return store
    parts = urlsplit(store)
    asked = sorted((name, value) for name, value in parse_qsl(parts.query) if not sounds_secret(name))
    return repr((parts.username, parts.hostname, parts.port, parts.path, asked))
