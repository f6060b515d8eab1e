"""The first answers of fresh processes: real processes, the real model, vectors that an earlier process stored."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.first_answer.measure import CONTEXT, SEARCH, Place, model_servers
from benchmarks.first_answer.work import QUERIES

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def place() -> Iterator[Place]:
    """A riglm in front of 120 tools; its model server ends with the directory."""
    with tempfile.TemporaryDirectory() as directory:
        yield Place(Path(directory) / "data", 120)


@pytest.mark.usefixtures("riglm_is_forked")
def test_first_answers_are_those_of_a_process_that_has_been_in_use(place: Place) -> None:
    """The first one waits for the vectors of tools that are seen for the first time."""
    unprepared = place.first(SEARCH, QUERIES[5], is_running=True)
    place.store_vectors()
    for tool, cases in ((SEARCH, ((0, True), (17, False))), (CONTEXT, ((39, True),))):
        later = place.later(tool, 0)
        for number, is_running in cases:
            first = place.first(tool, QUERIES[number], is_running=is_running)
            assert first.names == later[number], (tool, QUERIES[number])
            assert first.names or tool == CONTEXT  # where no tool is likely enough, none is sent
            assert not first.claims_nothing
        if tool == SEARCH:
            assert unprepared.names == later[5]


def test_riglm_run_in_which_nothing_is_searched_loads_neither_numpy_nor_a_model(place: Place) -> None:
    with place.riglm() as session:
        _, answer, _ = session.ask("tools/call", {"name": "index_status", "arguments": {}})
        assert "not recognised" not in answer.text()
        assert "numpy" not in Path(f"/proc/{session.pid}/maps").read_text()
        assert model_servers(place.sockets) == []
        session.ask("tools/call", {"name": SEARCH, "arguments": {"query": QUERIES[0]}})
        assert "numpy" in Path(f"/proc/{session.pid}/maps").read_text()
        assert len(model_servers(place.sockets)) == 1
