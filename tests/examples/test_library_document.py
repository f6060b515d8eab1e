"""The Python of the documents on the library is run, and what it promises holds."""

import re
from pathlib import Path

import pytest

from riglm import ToolSelector
from tests.unit.defer.test_agent_framework import Scripted

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "library.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)


class Answer:
    tool = "read_log"


def summed(numbers: list[int]) -> int:
    """Add numbers."""
    return sum(numbers)


def a_world():
    tools = [{"name": f"{what}_log", "description": f"{what} what a build says"} for what in ("read", "write", "find")]
    return {"tools": tools, "functions": [summed], "ask_the_model": lambda **_: Answer(), "client": Scripted()}


def a_model(block):
    """A model of the library that a block uses, which calls no tool."""
    from langchain_core.messages import AIMessage

    from tests.examples.scripted import ScriptedChat, ScriptedModel

    return ScriptedChat(messages=iter([AIMessage("done")]), shown=[]) if "langchain" in block else ScriptedModel()


ELSEWHERE = ("async with", "from strands", "from google.adk")
"""What is in blocks of the next test, or of `python -m benchmarks.libraries`."""


@pytest.mark.parametrize("block", [each for each in BLOCKS if not any(word in each for word in ELSEWHERE)])
def test_a_block_runs_as_it_stands(block, tmp_path, monkeypatch):
    from agents import set_tracing_disabled

    monkeypatch.chdir(tmp_path)
    set_tracing_disabled(True)
    assert len(block.splitlines()) <= 12
    exec(compile(block, str(DOCUMENT), "exec"), a_world() | {"model": a_model(block)})


async def test_the_block_on_an_event_loop_runs_as_it_stands():
    [block] = [each for each in BLOCKS if "async with" in each]
    lines = "".join(f"    {line}\n" for line in block.splitlines())
    world = a_world() | {"ToolSelector": ToolSelector}
    exec(compile(f"async def main():\n{lines}    return selection", str(DOCUMENT), "exec"), world)
    assert (await world["main"]()).names == ("read_log", "write_log", "find_log")


def test_every_public_name_is_documented_and_can_be_imported():
    import riglm

    for name in riglm.__all__:
        assert getattr(riglm, name).__doc__ or name == "USER_STORE"
    with pytest.raises(ImportError):
        exec("from riglm import Nonesuch")
