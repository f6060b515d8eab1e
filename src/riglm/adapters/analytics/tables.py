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

import sqlalchemy as sa
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from riglm.adapters.analytics.engine import database_file, make_engine, prepare, reading, safe_url, translated, writing
from riglm.adapters.analytics.prediction_store import original, storable, to_json
from riglm.domain.errors import SchemaTooNewError

if TYPE_CHECKING:
    from alembic.config import Config


class CompactUuid(sa.TypeDecorator[UUID]):
    """A UUID in 16 bytes: bytes on SQLite, the native type elsewhere."""

    impl = sa.LargeBinary(16)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        """The type underneath."""
        return dialect.type_descriptor(sa.LargeBinary(16) if dialect.name == "sqlite" else sa.Uuid())

    def process_bind_param(self, value: UUID | None, dialect: sa.Dialect) -> Any:
        """A UUID as the database takes it. Raises `TypeError` for any other value."""
        if value is not None and not isinstance(value, UUID):
            raise TypeError(f"{type(value).__name__} is no UUID")
        return value.bytes if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> UUID | None:
        """A UUID as the database gave it."""
        return UUID(bytes=value) if isinstance(value, bytes) else value


class SafeText(sa.TypeDecorator[str]):
    """Untrusted text, which is read back unchanged, with any characters."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Text that can be stored."""
        return None if value is None else storable(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Text as it was."""
        return None if value is None else original(value)


class JsonText(sa.TypeDecorator[Any]):
    """A small JSON value as ASCII text, spelt in one way."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        """The value as JSON."""
        return to_json(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """The value from JSON."""
        return None if value is None else json.loads(value)


def _columns(type_: Any, *names: str, **options: Any) -> list[sa.Column[Any]]:
    """Columns of one type, not null unless `options` say otherwise."""
    return [sa.Column(name, type_, **{"nullable": False, **options}) for name in names]


SCHEMA_REVISION: Final = "0013"
"""The newest migration that this code knows."""

VECTOR_TABLE: Final = "learned_vector"
"""The table of learned pairs' vectors where PostgreSQL has pgvector: `pair_id`, and `embedding` of type `vector`."""

metadata: Final = sa.MetaData()


def _table(name: str, *items: SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, *items)


toolset: Final = _table(
    "toolset",
    sa.Column("id", CompactUuid, primary_key=True),  # a hash of the names: many records refer to the same few lists
    sa.Column("names", JsonText, nullable=False),
    sa.Column(
        "used_at", sa.Double, nullable=False, server_default="0"
    ),  # to the day: when something last referred to it
)

session: Final = _table(
    "session",
    sa.Column("id", CompactUuid, primary_key=True),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    *_columns(sa.String(16), "era", "transport", "method", "confidence"),
    *_columns(SafeText, "client_name", "client_version"),
    *_columns(sa.String(64), "client_id", "principal"),
    sa.Column("protocol_version", SafeText, nullable=False),
    *_columns(JsonText, "keys", "metadata"),
    sa.Column("tools_available", CompactUuid, nullable=False),  # a toolset
    sa.Column("project", sa.String(64), nullable=False, server_default=""),
    sa.Index("session_started_at", "started_at"),
    sa.Index("session_principal", "principal", "started_at"),
    sa.Index("session_ended_at", "ended_at", "started_at"),  # those that have no end among them
)

invocation: Final = _table(
    "invocation",
    sa.Column("id", CompactUuid, primary_key=True),
    sa.Column("session_id", CompactUuid, nullable=False),  # no foreign key: an invocation may arrive before its session
    *_columns(SafeText, "tool", "upstream"),
    *_columns(sa.Double, "timestamp", "duration_ms"),
    sa.Column("success", sa.Boolean, nullable=False),
    sa.Column("sequence_number", sa.BigInteger, nullable=False),
    sa.Column("arguments_hash", sa.String(64), nullable=False),
    sa.Column("arguments", SafeText),
    sa.Column("error_kind", sa.String(16)),
    sa.Column("error_code", sa.BigInteger),
    sa.Column("found", sa.String(16), nullable=False),
    sa.Index("invocation_session_id", "session_id", "sequence_number"),
    sa.Index("invocation_timestamp", "timestamp"),
)

exposure: Final = _table(
    "exposure",
    sa.Column("id", CompactUuid, primary_key=True),
    sa.Column("session_id", CompactUuid, nullable=False),
    sa.Column("timestamp", sa.Double, nullable=False),
    sa.Column("shown", CompactUuid, nullable=False),  # a toolset
    sa.Column("available", CompactUuid, nullable=False),  # a toolset: what was shown and what was hidden
    *_columns(SafeText, "predictor", "reason"),
    sa.Column("mode", sa.String(16), nullable=False, server_default="off"),
    sa.Column("surface", sa.String(16), nullable=False, server_default=""),
    *_columns(sa.BigInteger, "tokens_shown", "tokens_hidden", "tokens_own", server_default="0"),
    sa.Index("exposure_session_id", "session_id", "timestamp"),
    sa.Index("exposure_timestamp", "timestamp"),
)

cooccurrence: Final = _table(
    "cooccurrence",
    *_columns(SafeText, "tool_a", "tool_b", primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    *_columns(sa.Double, "average_distance", "last_updated"),
    sa.Index("cooccurrence_tool_b", "tool_b"),
)

learned_pair: Final = _table(
    "learned_pair",
    sa.Column("id", CompactUuid, primary_key=True),
    *_columns(SafeText, "scope", "tool", "model"),
    sa.Column("dimensions", sa.BigInteger, nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),
    sa.Column("confidence", sa.Double, nullable=False),
    sa.Column("uses", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("description_hash", SafeText, nullable=False),
    sa.Column("terms", JsonText, nullable=False),
    sa.Index("learned_pair_model", "model", "updated_at"),
    sa.Index("learned_pair_updated_at", "updated_at"),
)

training_update: Final = _table(
    "lesson",  # the sessions that taught a learned pair
    *_columns(CompactUuid, "pair_id", "session_id", primary_key=True),
    sa.Index("lesson_session_id", "session_id"),
)

teacher: Final = _table(
    "teacher",  # who taught a learned pair in sessions that are purged, by keyed hashes
    sa.Column("pair_id", CompactUuid, primary_key=True),
    *_columns(SafeText, "client_id", "client_name", "principal", primary_key=True),
)

cached_vector: Final = _table(
    "cached_vector",
    *_columns(SafeText, "model", "hash", primary_key=True),
    sa.Column("rows", sa.BigInteger),  # null for a single vector
    sa.Column("dimensions", sa.BigInteger, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Column("used_at", sa.Double, nullable=False),
    sa.Index("cached_vector_used_at", "used_at", "rows", "dimensions"),  # all that pruning has to read
)

override: Final = _table(
    "override",
    sa.Column("id", CompactUuid, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("tool", SafeText, nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("key", SafeText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("reason", SafeText, nullable=False),
)

setting_change: Final = _table(
    "setting_change",  # the configuration that was changed at run time
    sa.Column("key", sa.String(128), primary_key=True),
    sa.Column("value", JsonText, nullable=False),
    sa.Column("changed_at", sa.Double, nullable=False),
)

warm_set: Final = _table(
    "warm_set",
    *_columns(SafeText, "principal", "client", "profile", "project", primary_key=True),
    *_columns(SafeText, "strategy", "predictor"),
    sa.Column("evidence", sa.BigInteger, nullable=False),
    sa.Column("probabilities", JsonText, nullable=False),
    *_columns(sa.Double, "requests", "distinct_tools", "created_at"),
)

tool_catalog: Final = _table(
    "tool_catalog",
    *_columns(sa.String(64), "fingerprint", "variant", primary_key=True),
    sa.Column("server", SafeText, nullable=False),
    sa.Column("capabilities", sa.LargeBinary, nullable=False),  # raw JSON
    sa.Column("instructions", SafeText, nullable=False),
    sa.Column("tools", sa.LargeBinary, nullable=False),  # a raw JSON array
    sa.Column("updated_at", sa.Double, nullable=False),
)

tool_pin: Final = _table(
    "tool_pin",
    *_columns(SafeText, "server", "name", primary_key=True),
    *_columns(sa.String(64), "digest", "seen_digest"),  # SHA-256 of what was approved, and of what was listed last
    *_columns(sa.LargeBinary, "definition", "seen"),  # raw JSON
    sa.Column("resembles", SafeText, nullable=False),
    *_columns(sa.Double, "pinned_at", "seen_at"),
)

token_usage: Final = _table(
    "token_usage",  # of sessions in transcripts, whether they are stored or not
    sa.Column("id", CompactUuid, primary_key=True),
    sa.Column("session_id", CompactUuid, nullable=False),
    sa.Column("client", SafeText, nullable=False),
    *_columns(sa.String(64), "client_id", "principal"),
    sa.Column("started_at", sa.Double, nullable=False),
    *_columns(sa.BigInteger, "calls", "requests", "uncached", "cached", "written", "output"),
    *_columns(sa.BigInteger, "first_prompt", "repeated", "reused"),
    sa.Index("token_usage_started_at", "started_at"),
)

forgotten: Final = _table(
    "forgotten",  # erased subjects: their records are refused, and whether all stored ones are deleted
    sa.Column("whose", sa.String(16), primary_key=True),
    sa.Column("key", SafeText, primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("is_done", sa.Boolean, nullable=False),
)


def _piece(name: str, *items: SchemaItem) -> sa.Table:
    """A table of knowledge: what all pieces of it have, and `items`."""
    return _table(
        name,
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),  # of what must not occur twice per owner
        sa.Column("text", SafeText, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("tags", JsonText, nullable=False),
        sa.Column("model", SafeText),  # of the vector; null while there is none
        sa.Column("dimensions", sa.BigInteger),
        sa.Column("vector", sa.LargeBinary),
        sa.Column("changed", sa.BigInteger, nullable=False),  # when, by the table's own clock
        *items,
        sa.Index(f"{name}_hash", "owner", "hash", unique=True),
        sa.Index(f"{name}_changed", "changed", "id"),
        sa.Index(f"{name}_created_at", "created_at"),
    )


thought: Final = _piece(
    "thought", sa.Column("origin", sa.String(16), nullable=False), sa.Column("is_private", sa.Boolean, nullable=False)
)

kg_entity: Final = _piece(
    "kg_entity", sa.Column("name", SafeText, nullable=False), sa.Column("kind", SafeText, nullable=False)
)

kg_observation: Final = _piece(
    "kg_observation",
    sa.Column("entity", SafeText, nullable=False),
    sa.Column("about", sa.String(64), nullable=False),  # the hash of the entity
    sa.Index("kg_observation_about", "owner", "about"),
)

kg_relation: Final = _table(
    "kg_relation",
    sa.Column("owner", sa.String(64), primary_key=True),
    sa.Column("hash", sa.String(64), primary_key=True),  # of the other three
    *_columns(SafeText, "source", "kind", "target"),
    *_columns(sa.String(64), "source_hash", "target_hash"),
    sa.Index("kg_relation_source", "owner", "source_hash"),
    sa.Index("kg_relation_target", "owner", "target_hash"),
)

knowledge_clock: Final = _table(
    # When pieces of a table were changed last, and when some were removed, in microseconds. The row `maintenance` has
    # the last time at which records were deleted for their age.
    "knowledge_clock",
    sa.Column("piece", sa.String(32), primary_key=True),
    *_columns(sa.BigInteger, "changed", "removed"),
)

_revisions: Final = sa.Table(  # where alembic keeps the newest migration that ran
    "alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True, nullable=False)
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
    with translated(url), engine_for(url) as engine:
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
            with engine_for(url) as engine, reading(engine) as connection:
                current = current_revision(connection)
    return SchemaStatus(url=safe_url(url), current=current, head=SCHEMA_REVISION, pending=pending_after(current, url))


def bring_up_to_date(engine: sa.Engine, url: str) -> None:
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
        if not sa.inspect(connection).get_table_names():
            metadata.create_all(connection)
            _revisions.metadata.create_all(connection)
            connection.execute(sa.insert(_revisions).values(version_num=SCHEMA_REVISION))
        elif pending_after(current_revision(connection), url):
            from alembic import command  # noqa: PLC0415  # nor is it needed by a store that is up to date

            config = alembic_config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


@contextmanager
def _migrating(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that changes the schema, one at a time in all processes; the table of pgvector follows."""
    with writing(engine, seconds=_MIGRATION_SECONDS) as connection:
        if engine.dialect.name == "sqlite":
            yield connection
            return
        from riglm.adapters.analytics import postgresql  # noqa: PLC0415  # the driver is an extra

        postgresql.wait_for_migrations(connection)
        yield connection
        postgresql.prepare_vectors(connection)


def current_revision(connection: sa.Connection) -> str | None:
    """The newest migration that ran, None for an empty database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
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
def engine_for(url: str) -> Iterator[sa.Engine]:
    """An engine for the database at `url`, which ends with the block."""
    engine = make_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()
