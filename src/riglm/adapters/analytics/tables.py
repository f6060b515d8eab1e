"""The tables of the analytics store, and the upgrade of a database to them.

Migrations bring a database to this shape; a test compares the two.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Double,
    Engine,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    Uuid,
    insert,
    inspect,
    text,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from riglm.adapters.analytics.engine import database_file, make_engine, prepare, reading, safe_url, translated, writing
from riglm.adapters.analytics.prediction_store import original, storable, to_json
from riglm.domain.errors import SchemaTooNewError

if TYPE_CHECKING:
    from alembic.config import Config


class CompactUuid(TypeDecorator[UUID]):
    """A UUID in 16 bytes: bytes on SQLite, the native type elsewhere."""

    impl = LargeBinary(16)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The type underneath."""
        return dialect.type_descriptor(LargeBinary(16) if dialect.name == "sqlite" else Uuid())

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        """A UUID as the database takes it. Raises `TypeError` for any other value."""
        if value is not None and not isinstance(value, UUID):
            raise TypeError(f"{type(value).__name__} is no UUID")
        return value.bytes if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        """A UUID as the database gave it."""
        return UUID(bytes=value) if isinstance(value, bytes) else value


class SafeText(TypeDecorator[str]):
    """Untrusted text, which is read back unchanged, with any characters."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Text that can be stored."""
        return None if value is None else storable(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Text as it was."""
        return None if value is None else original(value)


class JsonText(TypeDecorator[Any]):
    """A small JSON value as ASCII text, spelt in one way."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """The value as JSON."""
        return to_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value from JSON."""
        return None if value is None else json.loads(value)


def _columns(type_: Any, *names: str, **options: Any) -> list[Column[Any]]:
    """Columns of one type, not null unless `options` say otherwise."""
    return [Column(name, type_, **{"nullable": False, **options}) for name in names]


SCHEMA_REVISION: Final = "0013"
"""The newest migration that this code knows."""

VECTOR_TABLE: Final = "learned_vector"
"""The table of learned pairs' vectors where PostgreSQL has pgvector: `pair_id`, and `embedding` of type `vector`."""

metadata: Final = MetaData()


def _table(name: str, *items: SchemaItem) -> Table:
    return Table(name, metadata, *items)


toolset: Final = _table(
    "toolset",
    Column("id", CompactUuid, primary_key=True),  # a hash of the names: many records refer to the same few lists
    Column("names", JsonText, nullable=False),
    Column("used_at", Double, nullable=False, server_default="0"),  # to the day: when something last referred to it
)

session: Final = _table(
    "session",
    Column("id", CompactUuid, primary_key=True),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    *_columns(String(16), "era", "transport", "method", "confidence"),
    *_columns(SafeText, "client_name", "client_version"),
    *_columns(String(64), "client_id", "principal"),
    Column("protocol_version", SafeText, nullable=False),
    *_columns(JsonText, "keys", "metadata"),
    Column("tools_available", CompactUuid, nullable=False),  # a toolset
    Column("project", String(64), nullable=False, server_default=""),
    Index("session_started_at", "started_at"),
    Index("session_principal", "principal", "started_at"),
    Index("session_ended_at", "ended_at", "started_at"),  # those that have no end among them
)

invocation: Final = _table(
    "invocation",
    Column("id", CompactUuid, primary_key=True),
    Column("session_id", CompactUuid, nullable=False),  # no foreign key: an invocation may arrive before its session
    *_columns(SafeText, "tool", "upstream"),
    *_columns(Double, "timestamp", "duration_ms"),
    Column("success", Boolean, nullable=False),
    Column("sequence_number", BigInteger, nullable=False),
    Column("arguments_hash", String(64), nullable=False),
    Column("arguments", SafeText),
    Column("error_kind", String(16)),
    Column("error_code", BigInteger),
    Column("found", String(16), nullable=False),
    Index("invocation_session_id", "session_id", "sequence_number"),
    Index("invocation_timestamp", "timestamp"),
)

exposure: Final = _table(
    "exposure",
    Column("id", CompactUuid, primary_key=True),
    Column("session_id", CompactUuid, nullable=False),
    Column("timestamp", Double, nullable=False),
    Column("shown", CompactUuid, nullable=False),  # a toolset
    Column("available", CompactUuid, nullable=False),  # a toolset: what was shown and what was hidden
    *_columns(SafeText, "predictor", "reason"),
    Column("mode", String(16), nullable=False, server_default="off"),
    Column("surface", String(16), nullable=False, server_default=""),
    *_columns(BigInteger, "tokens_shown", "tokens_hidden", "tokens_own", server_default="0"),
    Index("exposure_session_id", "session_id", "timestamp"),
    Index("exposure_timestamp", "timestamp"),
)

cooccurrence: Final = _table(
    "cooccurrence",
    *_columns(SafeText, "tool_a", "tool_b", primary_key=True),
    Column("count", BigInteger, nullable=False),
    *_columns(Double, "average_distance", "last_updated"),
    Index("cooccurrence_tool_b", "tool_b"),
)

learned_pair: Final = _table(
    "learned_pair",
    Column("id", CompactUuid, primary_key=True),
    *_columns(SafeText, "scope", "tool", "model"),
    Column("dimensions", BigInteger, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("uses", BigInteger, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("description_hash", SafeText, nullable=False),
    Column("terms", JsonText, nullable=False),
    Index("learned_pair_model", "model", "updated_at"),
    Index("learned_pair_updated_at", "updated_at"),
)

training_update: Final = _table(
    "lesson",  # the sessions that taught a learned pair
    *_columns(CompactUuid, "pair_id", "session_id", primary_key=True),
    Index("lesson_session_id", "session_id"),
)

teacher: Final = _table(
    "teacher",  # who taught a learned pair in sessions that are purged, by keyed hashes
    Column("pair_id", CompactUuid, primary_key=True),
    *_columns(SafeText, "client_id", "client_name", "principal", primary_key=True),
)

cached_vector: Final = _table(
    "cached_vector",
    *_columns(SafeText, "model", "hash", primary_key=True),
    Column("rows", BigInteger),  # null for a single vector
    Column("dimensions", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("used_at", Double, nullable=False),
    Index("cached_vector_used_at", "used_at", "rows", "dimensions"),  # all that pruning has to read
)

override: Final = _table(
    "override",
    Column("id", CompactUuid, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("tool", SafeText, nullable=False),
    Column("scope", String(16), nullable=False),
    Column("key", SafeText, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("reason", SafeText, nullable=False),
)

setting_change: Final = _table(
    "setting_change",  # the configuration that was changed at run time
    Column("key", String(128), primary_key=True),
    Column("value", JsonText, nullable=False),
    Column("changed_at", Double, nullable=False),
)

warm_set: Final = _table(
    "warm_set",
    *_columns(SafeText, "principal", "client", "profile", "project", primary_key=True),
    *_columns(SafeText, "strategy", "predictor"),
    Column("evidence", BigInteger, nullable=False),
    Column("probabilities", JsonText, nullable=False),
    *_columns(Double, "requests", "distinct_tools", "created_at"),
)

tool_catalog: Final = _table(
    "tool_catalog",
    *_columns(String(64), "fingerprint", "variant", primary_key=True),
    Column("server", SafeText, nullable=False),
    Column("capabilities", LargeBinary, nullable=False),  # raw JSON
    Column("instructions", SafeText, nullable=False),
    Column("tools", LargeBinary, nullable=False),  # a raw JSON array
    Column("updated_at", Double, nullable=False),
)

tool_pin: Final = _table(
    "tool_pin",
    *_columns(SafeText, "server", "name", primary_key=True),
    *_columns(String(64), "digest", "seen_digest"),  # SHA-256 of what was approved, and of what was listed last
    *_columns(LargeBinary, "definition", "seen"),  # raw JSON
    Column("resembles", SafeText, nullable=False),
    *_columns(Double, "pinned_at", "seen_at"),
)

token_usage: Final = _table(
    "token_usage",  # of sessions in transcripts, whether they are stored or not
    Column("id", CompactUuid, primary_key=True),
    Column("session_id", CompactUuid, nullable=False),
    Column("client", SafeText, nullable=False),
    *_columns(String(64), "client_id", "principal"),
    Column("started_at", Double, nullable=False),
    *_columns(BigInteger, "calls", "requests", "uncached", "cached", "written", "output"),
    *_columns(BigInteger, "first_prompt", "repeated", "reused"),
    Index("token_usage_started_at", "started_at"),
)

forgotten: Final = _table(
    "forgotten",  # erased subjects: their records are refused, and whether all stored ones are deleted
    Column("whose", String(16), primary_key=True),
    Column("key", SafeText, primary_key=True),
    Column("at", Double, nullable=False),
    Column("is_done", Boolean, nullable=False),
)


def _piece(name: str, *items: SchemaItem) -> Table:
    """A table of knowledge: what all pieces of it have, and `items`."""
    return _table(
        name,
        Column("id", CompactUuid, primary_key=True),
        Column("owner", String(64), nullable=False),
        Column("hash", String(64), nullable=False),  # of what must not occur twice per owner
        Column("text", SafeText, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("tags", JsonText, nullable=False),
        Column("model", SafeText),  # of the vector; null while there is none
        Column("dimensions", BigInteger),
        Column("vector", LargeBinary),
        Column("changed", BigInteger, nullable=False),  # when, by the table's own clock
        *items,
        Index(f"{name}_hash", "owner", "hash", unique=True),
        Index(f"{name}_changed", "changed", "id"),
        Index(f"{name}_created_at", "created_at"),
    )


thought: Final = _piece(
    "thought", Column("origin", String(16), nullable=False), Column("is_private", Boolean, nullable=False)
)

kg_entity: Final = _piece(
    "kg_entity", Column("name", SafeText, nullable=False), Column("kind", SafeText, nullable=False)
)

kg_observation: Final = _piece(
    "kg_observation",
    Column("entity", SafeText, nullable=False),
    Column("about", String(64), nullable=False),  # the hash of the entity
    Index("kg_observation_about", "owner", "about"),
)

kg_relation: Final = _table(
    "kg_relation",
    Column("owner", String(64), primary_key=True),
    Column("hash", String(64), primary_key=True),  # of the other three
    *_columns(SafeText, "source", "kind", "target"),
    *_columns(String(64), "source_hash", "target_hash"),
    Index("kg_relation_source", "owner", "source_hash"),
    Index("kg_relation_target", "owner", "target_hash"),
)

knowledge_clock: Final = _table(
    # When pieces of a table were changed last, and when some were removed, in microseconds. The row `maintenance` has
    # the last time at which records were deleted for their age.
    "knowledge_clock",
    Column("piece", String(32), primary_key=True),
    *_columns(BigInteger, "changed", "removed"),
)

_revisions: Final = Table(  # where alembic keeps the newest migration that ran
    "alembic_version", MetaData(), Column("version_num", String(32), primary_key=True, nullable=False)
)
_MIGRATION_SECONDS: Final = 3600.0  # for one statement of a migration: tables may be large
_upgrading: Final = threading.Lock()  # alembic keeps the migration that runs in a global


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """Which migration a store has, which one this riglm has, and what is yet to be run."""

    url: str
    current: str | None
    head: str
    pending: tuple[str, ...]


def upgrade(url: str) -> SchemaStatus:
    """Bring the store at `url` to the newest schema, making it if it is not there; any number of processes may.

    Raises `SchemaTooNewError` when a newer riglm wrote the store, `AnalyticsUnavailableError` when it cannot be used.
    """
    with translated(url), _engine(url) as engine:
        bring_up_to_date(engine, url)
        if engine.dialect.name == "postgresql":
            with _migrating(engine):
                pass  # the server may have got pgvector since
    return status(url)


def status(url: str) -> SchemaStatus:
    """Compare the store at `url` with this riglm; nothing is made or changed.

    Raises `AnalyticsUnavailableError` when the store cannot be read.
    """
    current = None
    with translated(url):
        file = database_file(url)
        if file is None or file.exists():
            with _engine(url) as engine, reading(engine) as connection:
                current = current_revision(connection)
    return SchemaStatus(url=safe_url(url), current=current, head=SCHEMA_REVISION, pending=pending_after(current, url))


def bring_up_to_date(engine: Engine, url: str) -> None:
    """As `upgrade`, on an engine that is there already; the caller translates errors.

    An empty database gets its tables at once: the migrations would make the same ones, but cost every first start the
    import of alembic, which is 11 MiB and 0.1 s.
    """
    prepare(engine, url)
    with reading(engine, seconds=None) as connection:
        current = current_revision(connection)
    if current == SCHEMA_REVISION:
        return
    with _upgrading, _migrating(engine) as connection:
        if not inspect(connection).get_table_names():
            metadata.create_all(connection)
            _revisions.metadata.create_all(connection)
            connection.execute(insert(_revisions).values(version_num=SCHEMA_REVISION))
        elif pending_after(current_revision(connection), url):
            from alembic import command  # noqa: PLC0415  # nor is it needed by a store that is up to date

            config = alembic_config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


@contextmanager
def _migrating(engine: Engine) -> Iterator[Connection]:
    """A transaction that changes the schema, one at a time in all processes; the table of pgvector follows."""
    with writing(engine, seconds=_MIGRATION_SECONDS) as connection:
        if engine.dialect.name == "sqlite":
            yield connection
            return
        from riglm.adapters.analytics import postgresql  # noqa: PLC0415  # the driver is an extra

        postgresql.wait_for_migrations(connection)
        yield connection
        postgresql.prepare_vectors(connection)


def current_revision(connection: Connection) -> str | None:
    """The newest migration that ran, None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return revision


def migrations_directory() -> Path:
    """Where the migrations are: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"


def alembic_config() -> "Config":
    """The configuration for alembic's commands; no file is needed."""
    from alembic.config import Config  # noqa: PLC0415  # see bring_up_to_date

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def pending_after(current: str | None, url: str) -> tuple[str, ...]:
    """The migrations that follow `current`, oldest first."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415  # see bring_up_to_date

    known = [script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()][::-1]
    if current is None:
        return tuple(known)
    if current not in known:
        raise SchemaTooNewError(
            f"the analytics store {safe_url(url)} has schema {current}, and this riglm knows none after "
            f"{SCHEMA_REVISION}: upgrade riglm, or choose another store"
        )
    return tuple(known[known.index(current) + 1 :])


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = make_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()
