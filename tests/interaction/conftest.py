"""A stage for all tests of a worker."""

from collections.abc import Iterator

import pytest

from tests.interaction.stage import Stage


@pytest.fixture(autouse=True)
def _forks(riglm_is_forked: None) -> None:
    """Fork riglm for clients that others wrote, too."""


@pytest.fixture(scope="session")
def actors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage whose listening processes are shared by all tests that change nothing on them.

    In the end the database must be sound and hold every call that any of these tests made through riglm.
    """
    made = Stage(tmp_path_factory.mktemp("company"))
    yield made
    made.close()
    if made.called:
        assert made.damage() == []
        assert made.called - made.recorded() == {}
