"""Upgrades the analytics store to the newest schema, and reports its revision."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, insert, inspect, text

from riglm.adapters.analytics.engine import make_engine, reading, safe_url, translated, writing
from riglm.adapters.analytics.sqlite import database_file, prepare
from riglm.adapters.analytics.tables import SCHEMA_REVISION, metadata
from riglm.domain.errors import SchemaTooNewError

if TYPE_CHECKING:
    from alembic.config import Config

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
