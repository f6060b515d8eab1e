"""Overrides, changed settings, warm sets, session uses, catalogs and pins, in SQL for both SQLite and PostgreSQL.

A first list is made from them, and importing SQLAlchemy takes longer than a client should wait: nothing here needs it.
"""

import json
import logging
import re
import sqlite3
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from riglm.adapters.analytics.store_file import StoreFile, connect
from riglm.domain import rawjson
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.invocation import OWN_UPSTREAM
from riglm.domain.learning import MAX_USAGE_SESSIONS, WARM_SET_TTL_SECONDS, SessionUse, Usage, WarmSet, WarmSetKey
from riglm.domain.policy import Override, OverrideKind, OverrideScope
from riglm.domain.session import DEFAULT_PROFILE, PROFILE
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.tool_pin import ToolPin
from riglm.ports.analytics import OverridesPort, SettingChangesPort, ToolCatalogsPort, ToolPinsPort, WarmSetsPort

MAX_STORED_LENGTH: Final = 5
"""Maximum number of stored characters for one character of a text."""

_ESCAPE: Final = "\x1a"
_UNSTORABLE: Final = re.compile(f"[\0{_ESCAPE}\ud800-\udfff]")
_ESCAPED: Final = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")


def storable(text: str) -> str:
    """The text with NUL and lone surrogates as U+001A and four hexadecimal digits, and U+001A itself likewise."""
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def original(stored: str) -> str:
    """The text that was stored so."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored) if _ESCAPE in stored else stored


def to_json(value: Any) -> str:
    """Compact ASCII JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


ESCAPE: Final = "!"
"""The escape character of `profile_patterns`."""


def profile_patterns(profile: str) -> list[tuple[str, bool]]:
    """Return the LIKE patterns of the metadata of sessions in a profile.

    A session is in the profile if one pattern matches, or, where the second value is False, does not match.
    """
    member = to_json({PROFILE: profile}).strip("{}")
    for special in (ESCAPE, "%", "_"):
        member = member.replace(special, ESCAPE + special)
    patterns = [(f"%{member}%", True)]
    return patterns if profile != DEFAULT_PROFILE else [*patterns, (f'%"{PROFILE}":%', False)]


_BUSY_TIMEOUT_SECONDS: Final = 0.25  # for which a statement waits for another process that writes: a list waits for it

_OVERRIDES: Final = (
    "SELECT id, kind, tool, scope, key, created_at, expires_at, reason FROM override ORDER BY created_at, id"
)
_PUT_OVERRIDE: Final = (
    "INSERT INTO override (id, kind, tool, scope, key, created_at, expires_at, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_PUT_SETTING_CHANGE: Final = """
    INSERT INTO setting_change (key, value, changed_at) VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at
"""
_WARM_SET: Final = """
    SELECT strategy, predictor, evidence, probabilities, requests, distinct_tools, created_at FROM warm_set
    WHERE principal = ? AND client = ? AND profile = ? AND project = ?
"""
_PUT_WARM_SET: Final = """
    INSERT INTO warm_set (
        principal, client, profile, project, strategy, predictor, evidence, probabilities, requests, distinct_tools,
        created_at
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (principal, client, profile, project) DO UPDATE
    SET strategy = excluded.strategy, predictor = excluded.predictor, evidence = excluded.evidence,
        probabilities = excluded.probabilities, requests = excluded.requests,
        distinct_tools = excluded.distinct_tools, created_at = excluded.created_at
    WHERE warm_set.created_at = CAST(? AS DOUBLE PRECISION)
"""
_SESSIONS: Final = """
    SELECT id, started_at, client_name, principal, project, metadata FROM session
    WHERE {scope} AND EXISTS (SELECT 1 FROM invocation WHERE session_id = session.id AND success AND upstream != ?)
    ORDER BY started_at DESC, id DESC LIMIT ?
"""
_CALLS: Final = """
    SELECT session_id, tool FROM invocation WHERE session_id IN ({ids}) AND success AND upstream != ?
    ORDER BY session_id, sequence_number, id
"""
_CATALOG_COLUMNS: Final = ("fingerprint", "variant", "server", "capabilities", "instructions", "tools", "updated_at")
_CATALOGS: Final = "SELECT {columns} FROM tool_catalog WHERE fingerprint IN ({fingerprints})"
_PINS: Final = """
    SELECT server, name, digest, definition, seen_digest, seen, resembles, pinned_at, seen_at FROM tool_pin
    WHERE {servers} ORDER BY server, name
"""
_APPROVE: Final = """
    INSERT INTO tool_pin (server, name, digest, definition, seen_digest, seen, resembles, pinned_at, seen_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (server, name) DO UPDATE
    SET digest = excluded.digest,
        definition = CASE
            WHEN tool_pin.seen_digest = excluded.digest THEN tool_pin.seen
            WHEN tool_pin.digest = excluded.digest THEN tool_pin.definition
            ELSE excluded.definition
        END
"""

_log: Final = logging.getLogger("riglm.analytics")

Execute = Callable[[str, Sequence[Any]], Any]
"""Executes a statement with `?` for each value, and returns the driver's cursor."""


class PredictionStatements(OverridesPort, SettingChangesPort, WarmSetsPort, ToolCatalogsPort, ToolPinsPort):
    """The statements of the five ports, on a connection that a subclass provides."""

    @abstractmethod
    def _find(self, table: str, query: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a query of `table`."""

    @abstractmethod
    def _changing(self) -> AbstractContextManager[Execute]:
        """Return a transaction to write in."""

    @abstractmethod
    def _to_id(self, id_: UUID) -> Any:
        """Return an id as the database stores it."""

    def put_override(self, override: Override) -> None:
        key = self._to_id(override.id)
        with self._changing() as execute:
            execute("DELETE FROM override WHERE expires_at <= ? OR id = ?", (override.created_at, key))
            tool, scope_key, reason = map(storable, (override.tool, override.key, override.reason))
            created_at = float(override.created_at)
            kind, scope = override.kind.value, override.scope.value
            execute(_PUT_OVERRIDE, (key, kind, tool, scope, scope_key, created_at, override.expires_at, reason))

    def list_overrides(self) -> Sequence[Override]:
        return [
            Override(
                id=id_ if isinstance(id_, UUID) else UUID(bytes=id_),
                kind=OverrideKind(kind),
                tool=original(tool),
                scope=OverrideScope(scope),
                key=original(key),
                created_at=created_at,
                expires_at=expires_at,
                reason=original(reason),
            )
            for id_, kind, tool, scope, key, created_at, expires_at, reason in self._find("override", _OVERRIDES)
        ]

    def delete_override(self, override_id: UUID) -> bool:
        with self._changing() as execute:
            return bool(execute("DELETE FROM override WHERE id = ?", (self._to_id(override_id),)).rowcount > 0)

    def list_setting_changes(self) -> Mapping[str, Any]:
        rows = self._find("setting_change", "SELECT key, value FROM setting_change ORDER BY key")
        return {key: _read_json(value) for key, value in rows}

    def put_setting_changes(self, changes: Mapping[str, Any]) -> None:
        with self._changing() as execute:
            for key, value in changes.items():
                execute(_PUT_SETTING_CHANGE, (key, to_json(value), time.time()))

    def delete_setting_changes(self, keys: Sequence[str]) -> None:
        with self._changing() as execute:
            for key in keys:
                execute("DELETE FROM setting_change WHERE key = ?", (key,))

    def get_warm_set(self, key: WarmSetKey) -> WarmSet | None:
        return next((_warm_set(key, row) for row in self._find("warm_set", _WARM_SET, *_stored_key(key))), None)

    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        usage, created_at, stored = warm_set.usage, float(warm_set.created_at), _stored_key(warm_set.key)
        numbers = (float(usage.requests), float(usage.distinct_tools), created_at)
        with self._changing() as execute:
            execute("DELETE FROM warm_set WHERE created_at < ?", (created_at - WARM_SET_TTL_SECONDS,))
            names = map(storable, (warm_set.strategy, warm_set.predictor))
            values = (*stored, *names, usage.evidence, to_json(dict(usage.probabilities)), *numbers, replaces)
            execute(_PUT_WARM_SET, values)
            found = execute(_WARM_SET, stored).fetchone()
        return warm_set if found is None else _warm_set(warm_set.key, found)

    def forget_warm_sets(self) -> None:
        with self._changing() as execute:
            execute("DELETE FROM warm_set", ())

    def list_session_uses(
        self, principal: str | None = None, limit: int = MAX_USAGE_SESSIONS, *, profile: str | None = None
    ) -> Sequence[SessionUse]:
        scope, given = ("1 = 1", ()) if principal is None else ("principal = ?", (storable(principal),))
        if profile is not None:
            patterns = profile_patterns(profile)
            conditions = [f"metadata {'' if matches else 'NOT '}LIKE ? ESCAPE '{ESCAPE}'" for _, matches in patterns]
            scope, given = f"{scope} AND ({' OR '.join(conditions)})", (*given, *(pattern for pattern, _ in patterns))
        sessions = self._find("session", _SESSIONS.format(scope=scope), *given, OWN_UPSTREAM, limit)
        if not sessions:
            return []
        ids = [row[0] for row in sessions]
        tools: defaultdict[Any, list[str]] = defaultdict(list)
        for id_, tool in self._find("invocation", _CALLS.format(ids=_places(ids)), *ids, OWN_UPSTREAM):
            tools[id_].append(original(tool))
        return [
            SessionUse(
                started_at=started_at,
                tools=tuple(dict.fromkeys(tools[id_])),
                calls=len(tools[id_]),
                client=original(client),
                principal=original(whose),
                profile=json.loads(metadata).get(PROFILE, DEFAULT_PROFILE),
                project=project,
            )
            for id_, started_at, client, whose, project, metadata in sessions
            if id_ in tools
        ]

    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
        if not fingerprints:
            return []
        query = _CATALOGS.format(columns=", ".join(_CATALOG_COLUMNS), fingerprints=_places(fingerprints))
        rows = self._find("tool_catalog", query, *fingerprints)
        return [catalog for row in rows if (catalog := _catalog(row)) is not None]

    def list_tool_pins(self, servers: Sequence[str] | None = None) -> Sequence[ToolPin]:
        named = "1 = 1" if servers is None else f"server IN ({_places(servers)})"
        if servers is not None and not servers:
            return []
        rows = self._find("tool_pin", _PINS.format(servers=named), *map(storable, servers or ()))
        found = [(row, pin) for row in rows if (pin := _pin(row)) is not None]
        _log_lost_approvals([pin for (_, _, digest, definition, *_), pin in found if _is_lost(pin, digest, definition)])
        return [pin for _, pin in found]

    def approve_tools(self, approved: Sequence[ToolPin]) -> None:
        with self._changing() as execute:
            for pin in approved:
                texts = storable(pin.server), storable(pin.name), pin.digest, pin.definition, pin.seen_digest, pin.seen
                execute(_APPROVE, (*texts, storable(pin.resembles), float(pin.pinned_at), float(pin.seen_at)))


def _catalog(row: Sequence[Any]) -> StoredToolCatalog | None:
    """Return a stored catalog; None for a damaged one, which is replaced when its server lists its tools again."""
    with suppress(msgspec.ValidationError):
        values = dict(zip(_CATALOG_COLUMNS, row, strict=True))
        found = msgspec.convert(values, StoredToolCatalog, builtin_types=(bytes,))
        entries = msgspec.convert(rawjson.plain(found.tools), list[dict[str, Any]])
        has_names = not entries or any(isinstance(entry.get("name"), str) for entry in entries)
        if has_names and (not found.capabilities or isinstance(rawjson.plain(found.capabilities), dict)):
            return replace(found, server=original(found.server), instructions=original(found.instructions))
    _log_damage("tool_catalog")
    return None


def _pin(row: Sequence[Any]) -> ToolPin | None:
    """Return a stored pin, less what is damaged of it; None if its tool is unknown.

    A tool without its digest is not approved any more. An approved definition may be what was listed last, and what was
    listed comes back with the next list.
    """
    server, name, digest, definition, seen_digest, seen, resembles, pinned_at, seen_at = row
    if not isinstance(server, str) or not isinstance(name, str):
        _log_damage("tool_pin")
        return None
    approved, listed = _digest(digest), _digest(seen_digest)
    last = _definition(seen) if listed else b""
    pin = ToolPin(
        server=original(server),
        name=original(name),
        digest=approved,
        definition=(_definition(definition) or (last if listed == approved else b"")) if approved else b"",
        seen_digest=listed if last else "",
        seen=last,
        resembles=original(resembles) if isinstance(resembles, str) else "",
        pinned_at=_time(pinned_at),
        seen_at=_time(seen_at),
    )
    if (pin.seen_digest, pin.seen, pin.seen_at) != (seen_digest, seen, seen_at):
        _log_damage("tool_pin")
    return pin


def _digest(stored: Any) -> str:
    return stored if isinstance(stored, str) and _DIGEST.fullmatch(stored) else ""


def _definition(stored: Any) -> bytes:
    return stored if isinstance(stored, bytes) and rawjson.members(stored) else b""


def _time(stored: Any) -> float:
    return stored if isinstance(stored, float) and 0 <= stored < _MAX_TIME else 0.0


_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MAX_TIME: Final = 1e11
_MAX_NAMED: Final = 20
_damaged: Final[set[str]] = set()  # the tables and tools whose damage was reported


def _log_damage(table: str) -> None:
    """Report damaged rows of a table once."""
    if table not in _damaged:
        _damaged.add(table)
        _log.warning("damaged rows of the store are skipped until they are written again", extra={"table": table})


def _is_lost(pin: ToolPin, digest: Any, definition: Any) -> bool:
    """True if the stored digest or definition that was approved is damaged."""
    return digest != pin.digest or (definition != b"" and not pin.definition)


def _log_lost_approvals(pins: Sequence[ToolPin]) -> None:
    """Report tools with a damaged approval, each once."""
    tools = [tool for pin in pins if (tool := f"{pin.server}/{pin.name}") not in _damaged]
    _damaged.update(tools)
    if tools:
        named = ", ".join(tool if tool.isprintable() else ascii(tool) for tool in tools[:_MAX_NAMED]) + (
            ", …" if len(tools) > _MAX_NAMED else ""
        )
        _log.warning(
            "%s: the stored approval is damaged — fix: look at `riglm tools changes`, then run `riglm tools approve`",
            named,
            extra={"table": "tool_pin", "number": len(tools)},
        )


class SqliteChoices(PredictionStatements):
    """The SQLite file of `SqlAnalytics`, without SQLAlchemy.

    It is opened for each question, and never created: before `SqlAnalytics` creates it, nothing was decided.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def _to_id(self, id_: UUID) -> bytes:
        return id_.bytes

    def _find(self, table: str, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query; none while there is no such table."""
        if not self._file.exists():
            return []
        with self._opened("ro") as connection:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
            return connection.execute(query, values).fetchall() if known.fetchone() else []

    @contextmanager
    def _changing(self) -> Iterator[Execute]:
        file = StoreFile(self._file)
        with self._opened("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection.execute
        if not file.is_in_place:
            raise AnalyticsUnavailableError(f"the store {self._file} was replaced meanwhile: try again")

    @contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection to a file that is there already; every failure arrives as `AnalyticsUnavailableError`."""
        try:
            with closing(connect(self._file.resolve(), mode, _BUSY_TIMEOUT_SECONDS)) as connection:
                connection.text_factory = lambda raw: raw.decode(errors="replace")
                yield connection
        except (sqlite3.Error, OSError, ValueError) as error:
            raise AnalyticsUnavailableError(f"the store {self._file} cannot be used: {error}") from error


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # no setting takes it, so that it is named and can be removed


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _stored_key(key: WarmSetKey) -> tuple[str, ...]:
    return tuple(map(storable, (key.principal, key.client, key.profile, key.project)))


def _warm_set(key: WarmSetKey, row: Sequence[Any]) -> WarmSet:
    strategy, predictor, evidence, probabilities, requests, distinct_tools, created_at = row
    usage = Usage(
        evidence=evidence, probabilities=json.loads(probabilities), requests=requests, distinct_tools=distinct_tools
    )
    return WarmSet(
        key=key, strategy=original(strategy), predictor=original(predictor), usage=usage, created_at=created_at
    )
