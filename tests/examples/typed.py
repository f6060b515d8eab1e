"""What types a user of the library sees; read by mypy, and run by nobody."""

from collections.abc import Sequence
from typing import Any, assert_type

from mcp import Tool

from riglm import USER_STORE, FoundTool, SearchResult, Selection, SelectionReason, ToolSelector, ToolSession


def the_tools_that_come_out_are_of_the_type_that_went_in(tools: Sequence[Tool]) -> None:
    with ToolSelector(tools, store=USER_STORE) as selector, selector.session("a conversation", user="anna") as session:
        assert_type(session, ToolSession[Tool])
        selection = session.select("what it is about")
        assert_type(selection, Selection[Tool])
        assert_type(selection.tools, list[Tool])
        assert_type(selection.reasons["read_file"], SelectionReason)
        session.used(selection.tools[0])
        session.used("read_file", failed=True, seconds=0.2)
        assert_type(session.search("a file"), SearchResult[Tool])
        assert_type(list(session.search("a file")), list[FoundTool[Tool]])


async def so_they_are_on_an_event_loop(definitions: list[dict[str, Any]]) -> None:
    selector = ToolSelector[dict[str, Any]]()
    async with selector:
        session = selector.session()
        assert_type((await session.aselect("it", tools=definitions)).tools, list[dict[str, Any]])
        assert_type((await session.asearch("it")).tools, list[dict[str, Any]])
