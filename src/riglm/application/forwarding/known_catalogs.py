"""The tool catalogs of upstream servers as they were last received, in this process or in an earlier one."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.domain import jsonrpc
from riglm.domain.hashing import KEY_BYTES, KeyedHasher
from riglm.domain.jsonrpc import Raw
from riglm.domain.session import Era
from riglm.domain.tool_catalog import MAX_CATALOG_BYTES, ToolCatalog
from riglm.domain.upstream import UpstreamSpec

REFRESH_SECONDS: Final = 86_400.0
"""Seconds after which an unchanged catalog is recorded again, so that the store does not take it for unused."""

MAX_CATALOGS: Final = 256
"""Maximum number of catalogs in memory. The oldest are removed first."""

_log: Final = logging.getLogger("riglm.proxy")


class KnownCatalogs:
    """Keeps the latest catalogs of each server, and records those that changed."""

    def __init__(
        self,
        hasher: KeyedHasher | None = None,
        put: Callable[[ToolCatalog, int], None] = lambda *_: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`put` records a catalog and its size in bytes without blocking. By default catalogs stay in this process."""
        self._hasher = hasher or KeyedHasher(os.urandom(KEY_BYTES))
        self._put = put
        self._clock = clock
        self._known: dict[tuple[str, str], ToolCatalog] = {}
        self._fingerprints: dict[str, tuple[UpstreamSpec, str]] = {}
        self._guarded = FailingOpen(_log, "tool catalogs could not be kept; lists wait for their servers, and")

    def load(self, specs: Sequence[UpstreamSpec], read: Callable[[Sequence[str]], Sequence[ToolCatalog]]) -> None:
        """Take the stored catalogs of these servers. Blocks, and may be called on another thread."""
        with self._guarded:
            for catalog in read([self._fingerprint(spec) for spec in specs]):
                self._known.setdefault((catalog.fingerprint, catalog.variant), catalog)

    def variant_for(self, era: Era, capabilities: bytes = b"") -> str:
        """Return the variant of a catalog that a client with these raw capabilities is given."""
        return f"{era.value}:{self._hasher.catalog(capabilities)}" if capabilities else era.value

    def find(self, spec: UpstreamSpec, variant: str) -> ToolCatalog | None:
        """Return the latest catalog of a server, None if nothing is known of it."""
        return self._known.get((self._fingerprint(spec), variant))

    def note(
        self,
        spec: UpstreamSpec,
        variant: str,
        *,
        greeting: tuple[bytes, str] | None = None,
        entries: Sequence[Raw] | None = None,
    ) -> None:
        """Take what a server said: its raw capabilities and its instructions, or its raw tools.

        A catalog is recorded once its tools are known.
        """
        given = self._latest(spec, variant)
        if greeting is not None:
            given = replace(given, capabilities=greeting[0], instructions=greeting[1])
        if entries is not None:
            given = replace(given, tools=b"[%b]" % b",".join(map(bytes, entries)))
        key, now = (given.fingerprint, given.variant), self._clock()
        if given == self._known.get(key) and given.updated_at > now - REFRESH_SECONDS:
            return
        self._known.pop(key, None)
        self._known[key] = given = replace(given, updated_at=now)
        if len(self._known) > MAX_CATALOGS:
            del self._known[next(iter(self._known))]
        if given.tools and given.size_bytes <= MAX_CATALOG_BYTES:
            with self._guarded:
                self._put(given, given.size_bytes)

    def _latest(self, spec: UpstreamSpec, variant: str) -> ToolCatalog:
        return self.find(spec, variant) or ToolCatalog(
            fingerprint=self._fingerprint(spec),
            variant=variant,
            server=spec.name,
            capabilities=b"",
            instructions="",
            tools=b"",
            updated_at=0.0,
        )

    def _fingerprint(self, spec: UpstreamSpec) -> str:
        """Return a keyed hash of how a server is started or reached, from which nothing secret can be read."""
        known = self._fingerprints.get(spec.name)
        if known is None or known[0] != spec:
            how = [spec.name, spec.kind, spec.command, dict(spec.env), spec.cwd, spec.url, dict(spec.headers)]
            known = self._fingerprints[spec.name] = (spec, self._hasher.catalog(jsonrpc.encode(how)))
        return known[1]
