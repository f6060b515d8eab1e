"""Overrides, warm sets, session uses and tool catalogs in the SQLite file of `SqlAnalytics`, without SQLAlchemy.

A first list is made from it, and importing SQLAlchemy takes longer than a client should wait for that.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from riglm.adapters.analytics.store_file import StoreFile, connect
from riglm.adapters.analytics.text_escaping import original, storable
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.invocation import OWN_UPSTREAM
from riglm.domain.policy import Override, OverrideKind, OverrideScope
from riglm.domain.session import PROFILE
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.usage import MAX_USAGE_SESSIONS, TTL_SECONDS, SessionUse, Usage, WarmSet
from riglm.ports.prediction_store import OverridesPort, ToolCatalogsPort, WarmSetsPort

_DEFAULT_PROFILE: Final = "default"


class SessionRow(NamedTuple):
    """The stored fields of a session that count for its use."""

    id: Hashable
    started_at: float
    client: str
    principal: str
    metadata: Mapping[str, str]


def to_session_uses(sessions: Iterable[SessionRow], calls: Iterable[tuple[Hashable, str]]) -> Sequence[SessionUse]:
    """Return the uses of those sessions that have calls; `calls` are session ids and tools in the order of use."""
    tools: defaultdict[Hashable, list[str]] = defaultdict(list)
    for session_id, tool in calls:
        tools[session_id].append(tool)
    return [
        SessionUse(
            started_at=each.started_at,
            tools=tuple(dict.fromkeys(tools[each.id])),
            calls=len(tools[each.id]),
            client=each.client,
            principal=each.principal,
            profile=each.metadata.get(PROFILE, _DEFAULT_PROFILE),
        )
        for each in sessions
        if each.id in tools
    ]


BUSY_TIMEOUT_MS: Final = 250
"""How long a statement waits for another process that writes: a list waits for it."""

_SESSIONS: Final = """
    SELECT id, started_at, client_name, principal, metadata FROM session
    WHERE {scope} AND EXISTS (SELECT 1 FROM invocation WHERE session_id = session.id AND success AND upstream != ?)
    ORDER BY started_at DESC, id DESC LIMIT ?
"""

_CALLS: Final = """
    SELECT session_id, tool FROM invocation WHERE session_id IN ({ids}) AND success AND upstream != ?
    ORDER BY session_id, sequence_number
"""

_WARM_SET: Final = """
    SELECT evidence, probabilities, requests, distinct_tools, created_at FROM warm_set
    WHERE principal = ? AND client = ? AND profile = ?
"""

_PUT_WARM_SET: Final = """
    INSERT INTO warm_set (principal, client, profile, evidence, probabilities, requests, distinct_tools, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (principal, client, profile) DO UPDATE
    SET evidence = excluded.evidence, probabilities = excluded.probabilities, requests = excluded.requests,
        distinct_tools = excluded.distinct_tools, created_at = excluded.created_at
    WHERE warm_set.created_at = ?
"""


class SqliteChoices(OverridesPort, WarmSetsPort, ToolCatalogsPort):
    """Opens the file for each question, and makes none: before `SqlAnalytics` made it, nothing was decided."""

    def __init__(self, file: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._file = file
        self._busy_timeout_ms = busy_timeout_ms

    def put_override(self, override: Override) -> None:
        with self._writing() as connection:
            connection.execute(
                "DELETE FROM override WHERE expires_at <= ? OR id = ?", (override.created_at, override.id.bytes)
            )
            connection.execute(
                "INSERT INTO override (id, kind, tool, scope, key, created_at, expires_at, reason)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    override.id.bytes,
                    override.kind.value,
                    storable(override.tool),
                    override.scope.value,
                    storable(override.key),
                    float(override.created_at),
                    override.expires_at,
                    storable(override.reason),
                ),
            )

    def list_overrides(self) -> Sequence[Override]:
        found = self._read(
            "override",
            "SELECT id, kind, tool, scope, key, created_at, expires_at, reason FROM override ORDER BY created_at, id",
        )
        return [
            Override(
                id=UUID(bytes=id_),
                kind=OverrideKind(kind),
                tool=original(tool),
                scope=OverrideScope(scope),
                key=original(key),
                created_at=created_at,
                expires_at=expires_at,
                reason=original(reason),
            )
            for id_, kind, tool, scope, key, created_at, expires_at, reason in found
        ]

    def delete_override(self, override_id: UUID) -> bool:
        with self._writing() as connection:
            return connection.execute("DELETE FROM override WHERE id = ?", (override_id.bytes,)).rowcount > 0

    def get_warm_set(self, principal: str, client: str, profile: str) -> WarmSet | None:
        key = (storable(principal), storable(client), storable(profile))
        for evidence, probabilities, requests, distinct_tools, created_at in self._read("warm_set", _WARM_SET, key):
            usage = Usage(
                evidence=evidence,
                probabilities=json.loads(probabilities),
                requests=requests,
                distinct_tools=distinct_tools,
            )
            return WarmSet(principal=principal, client=client, profile=profile, usage=usage, created_at=created_at)
        return None

    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        usage = warm_set.usage
        row = (
            storable(warm_set.principal),
            storable(warm_set.client),
            storable(warm_set.profile),
            usage.evidence,
            json.dumps(dict(usage.probabilities), separators=(",", ":")),
            float(usage.requests),
            float(usage.distinct_tools),
            float(warm_set.created_at),
        )
        with self._writing() as connection:
            connection.execute("DELETE FROM warm_set WHERE created_at < ?", (warm_set.created_at - TTL_SECONDS,))
            connection.execute(_PUT_WARM_SET, (*row, replaces))
        return self.get_warm_set(warm_set.principal, warm_set.client, warm_set.profile) or warm_set

    def forget_warm_sets(self) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM warm_set")

    def list_session_uses(self, principal: str | None = None, limit: int = MAX_USAGE_SESSIONS) -> Sequence[SessionUse]:
        scope, given = ("principal = ?", (storable(principal),)) if principal is not None else ("1", ())
        found = self._read("session", _SESSIONS.format(scope=scope), (*given, OWN_UPSTREAM, limit))
        sessions = [
            SessionRow(id_, started_at, original(client), original(whose), json.loads(metadata))
            for id_, started_at, client, whose, metadata in found
        ]
        ids = [each.id for each in sessions]
        calls = self._read("invocation", _CALLS.format(ids=",".join("?" * len(ids))), (*ids, OWN_UPSTREAM))
        return to_session_uses(sessions, ((id_, original(tool)) for id_, tool in calls))

    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
        found = self._read(
            "tool_catalog",
            "SELECT fingerprint, variant, server, capabilities, instructions, tools, updated_at FROM tool_catalog"
            " WHERE fingerprint IN (SELECT value FROM json_each(?))",
            (json.dumps(list(fingerprints)),),
        )
        return [
            StoredToolCatalog(
                fingerprint=fingerprint,
                variant=variant,
                server=original(server),
                capabilities=capabilities,
                instructions=original(instructions),
                tools=tools,
                updated_at=updated_at,
            )
            for fingerprint, variant, server, capabilities, instructions, tools, updated_at in found
        ]

    def _read(self, table: str, query: str, given: Sequence[object] = ()) -> list[Any]:
        """What a query finds; nothing while there is no such table."""
        if not self._file.exists():
            return []
        with self._opened("ro") as connection:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
            return connection.execute(query, given).fetchall() if known.fetchone() else []

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        file = StoreFile(self._file)
        with self._opened("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection
        if not file.is_in_place:
            raise AnalyticsUnavailableError(f"the store {self._file} was replaced meanwhile: try again")

    @contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection to a file that is there already; every failure arrives as `AnalyticsUnavailableError`."""
        try:
            with closing(connect(self._file.resolve(), mode, self._busy_timeout_ms / 1000)) as connection:
                yield connection
        except (sqlite3.Error, OSError, ValueError) as error:
            raise AnalyticsUnavailableError(f"the store {self._file} cannot be used: {error}") from error
