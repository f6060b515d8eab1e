"""What all tests share."""

import gc
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.interaction.stage import Stage
    from tests.stores.postgres import Databases

pytest.register_assert_rewrite("riglm.testing", "tests.contracts")

settings.register_profile(
    "same", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", parent=settings.get_profile("same"), derandomize=False, max_examples=2000)
settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect no garbage while modules and tests are made, which stay, and never look at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a test whose name differs from process to process: workers could not share the tests out."""
    assert " at 0x" not in item.nodeid, f"{item.nodeid}: the name holds an address — fix: give the parameter an id"


@pytest.fixture(scope="session", autouse=True)
def _model_server() -> Iterator[None]:
    """One model server for all tests, which exits at their end: its socket is in a directory that is removed then."""
    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory(prefix="riglm-") as directory:
        environment.setenv("XDG_RUNTIME_DIR", directory)
        yield


@pytest.fixture
def riglm_is_forked() -> Iterator[None]:
    """Every `python -m riglm` that tests start is forked from a process that has imported it."""
    from tests.preloaded import forked

    with forked():
        yield


@pytest.fixture
def stage(tmp_path: Path) -> "Iterator[Stage]":
    """A stage for processes of the test's own."""
    from tests.interaction.stage import Stage

    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Databases]":
    """Databases on a real PostgreSQL, which is started by the first test that asks for it."""
    from tests.stores.postgres import databases

    with databases() as found:
        yield found


@pytest.fixture
def postgres_url(postgres: "Databases") -> Iterator[str]:
    """A PostgreSQL database of the test's own that holds riglm's tables."""
    with postgres.migrated() as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres: "Databases") -> Iterator[str]:
    """A PostgreSQL database of the test's own without tables."""
    with postgres.empty() as url:
        yield url
