"""Where the spools of a store are: what was recorded for one store must not come into another."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

_PORT: Final = "5432"


def spool_directory(base: Path, store: str) -> Path:
    """The directory below `base` for the spools of a store, which is a file or a URL, however that is spelled."""
    name = _database(store) if "://" in store else os.path.realpath(store)
    return base / sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _database(url: str) -> str:
    """The servers, their ports, the database, and the schema where the URL chooses one: not who asks, nor how."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    user, _, places = parts.netloc.rpartition("@")
    named = asked.get("host") or asked.get("hostaddr") or unquote(places)
    ports = asked.get("port", _PORT).split(",")
    servers = [_server(place, ports[min(at, len(ports) - 1)]) for at, place in enumerate(named.split(","))]
    database = asked.get("dbname") or unquote(parts.path.strip("/"))
    database = database or asked.get("user") or unquote(user.partition(":")[0])  # as PostgreSQL's client has it
    options = asked.get("options", "")
    return repr((servers, database, options if "search_path" in options else ""))


def _server(place: str, port: str) -> tuple[str, str]:
    if place.startswith("/"):  # the directory of a socket
        return place, port
    host, colon, own = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place.lower(), port
    return host.lower(), own or port
