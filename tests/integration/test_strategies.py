"""The configured strategy decides what clients get: real processes, a real client, and a store with a past."""

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from riglm.ports.analytics import Record
from tests.integration.controlled import Controlled, controlled
from tests.integration.packages import package
from tests.records import a_session, an_exposure, an_invocation

pytestmark = pytest.mark.timeout(300)
SERVERS: Final = ("files", "issues", "mails", "pages")
OWN_NAMES: Final = tuple(
    f"{verb}_{part}" for verb in ("get", "put", "find", "drop") for part in ("one", "all", "old", "new")
)
TOOLS: Final = {f"{server}__{name}": server for server in SERVERS for name in OWN_NAMES}
SCHEMA: Final = {"type": "object", "properties": {"about": {"type": "string", "description": "what it is about " * 40}}}
WORKFLOWS: Final = (
    ("issues__find_new", "issues__get_one", "files__get_one", "files__put_one"),
    ("mails__find_new", "mails__get_one", "mails__put_new"),
    ("pages__find_old", "pages__get_one", "pages__drop_old", "mails__put_new"),
    ("issues__get_all", "files__find_old", "files__drop_old"),
)
BEGINNINGS: Final = {workflow[0] for workflow in WORKFLOWS}
FAVORITE: Final = "pages__drop_all"
PLUGIN: Final = """
import numpy as np
from riglm.domain.prediction import Prediction

class Favorite:
    def learn(self, prediction_input, tool, weight=1.0):
        pass

    def predict(self, prediction_input, *, explain=False):
        return Prediction(scores=np.array([float(name == "pages__drop_all") for name in prediction_input.candidates]))
"""


def a_past(now: float) -> Iterator[Record]:
    """60 sessions of four workflows, one a day, each at its time of day: the first at that of now."""
    for number in range(60):
        workflow = random.Random(number).randrange(len(WORKFLOWS))
        started = now - 86_400 * (60 - number) + 6 * 3_600 * workflow
        session = a_session(started_at=started, ended_at=started + 60, tools_available=tuple(TOOLS))
        yield session
        yield an_exposure(session, *TOOLS)
        for tool in WORKFLOWS[workflow]:
            yield an_invocation(session, tool, upstream=TOOLS[tool])


@contextmanager
def riglm(folder: Path, kind: str, **settings: str) -> Iterator[Controlled]:
    """A riglm in front of four servers, whose strategy is of a kind."""
    folder.mkdir()
    servers = {}
    for server in SERVERS:
        file = folder / f"{server}.json"
        file.write_text(
            json.dumps(
                [{"name": name, "description": name.replace("_", " "), "inputSchema": SCHEMA} for name in OWN_NAMES]
            )
        )
        servers[server] = {
            "command": sys.executable,
            "args": [str(Path(__file__).with_name("listing_server.py")), str(file)],
        }
    settings = {"FILTERING__COVERAGE": "", "PREDICTOR__KIND": kind, **settings}
    configuration = json.dumps({"mcpServers": servers})
    with controlled(folder, past=list(a_past(time.time())), settings=settings, configuration=configuration) as started:
        yield started


async def seen_by(started: Controlled) -> tuple[list[str], list[str], list[str], dict[str, Any]]:
    """What a client gets at once and after two calls, what is sent with a search then, and what is predicted."""
    async with started.client() as client:
        first = [tool.name for tool in (await client.list_tools()).tools]
        for tool in ("pages__find_old", "pages__get_one"):
            await client.call_tool("call_tool", {"name": tool, "arguments": {}})
        answer = await client.call_tool("search_available_tools", {"query": "put all issues"})
        found = json.loads(answer.content[0].text)
        (session,) = started.ask("GET", "/sessions?active=true").json["items"]
        predicted = started.ask("GET", f"/predictions/{session['id']}").json
    later = [tool["name"] for tool in found.get("often_used_next", ())]
    return [name for name in first if name in TOOLS], later, [tool["name"] for tool in found["tools"]], predicted


async def test_the_strategies_give_lists_of_their_own(tmp_path):
    lists, companions = {}, {}
    for kind in ("frequency", "cooccurrence", "sequence", "embedding", "server", "hybrid"):
        with riglm(tmp_path / kind, kind) as started:
            lists[kind], companions[kind], _, predicted = await seen_by(started)
            assert predicted["predictor"] == ("" if kind == "embedding" else kind)
            recorded = started.ask("GET", "/sessions?active=false").json["items"]
            assert recorded
    used = {tool for workflow in WORKFLOWS for tool in workflow}
    assert set(lists["sequence"]) >= BEGINNINGS
    assert len(set(lists["sequence"]) - BEGINNINGS) <= 1  # no list is shorter than min_tools
    assert set(lists["hybrid"]) == used
    assert set(lists["frequency"]) < used
    assert lists["cooccurrence"] == lists["frequency"]
    assert sum(TOOLS[name] in {"files", "issues"} for name in lists["server"]) >= 4  # most sessions use these servers
    assert len({tuple(lists[kind]) for kind in lists}) == 5
    assert "pages__drop_old" not in lists["cooccurrence"]
    assert (companions["frequency"], companions["cooccurrence"]) == ([], ["pages__drop_old"])


async def test_what_a_third_party_strategy_states_is_listed_sent_and_predicted(tmp_path, monkeypatch):
    path = package(
        tmp_path / "plug",
        "favorite",
        "1.0",
        {"favorite.py": PLUGIN},
        "[riglm.predictors]\nfavorite = favorite:Favorite\n",
    )
    monkeypatch.setenv("PYTHONPATH", path)
    with riglm(tmp_path / "riglm", "favorite") as started:
        first, _, _, predicted = await seen_by(started)
    assert FAVORITE in first
    assert predicted["predictor"] == "favorite"
    best = predicted["tools"][0]
    assert (best["tool"], best["rank"]) == (FAVORITE, 1)
    assert best["score"] > 0.9
