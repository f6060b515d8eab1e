"""A LangChain agent whose model gets the selected tools at once and finds the others by the provider's search."""

import pytest

from riglm import ToolSelector


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_model_finds_a_tool_and_is_given_it_in_later_sessions(is_async):
    from tests.unit.defer.langchain_agent import HABIT, AIMessage, Scripted, answer, found_and_called

    loaded: list[list[str]] = []
    async with ToolSelector(max_tools=3, embedder="static") as selector:
        for _ in range(4):
            with selector.session() as session:
                messages = [found_and_called(HABIT), AIMessage("all is done")]
                model = Scripted(messages=iter(messages), loaded=[], types=[])
                assert f"{HABIT} is done" in await answer(model, session, is_async=is_async)
                loaded.append(model.loaded[0])
                found = await session.asearch("my new task")
    assert HABIT not in loaded[0]
    assert HABIT in loaded[-1]
    assert {len(names) for names in loaded} == {3}
    assert set(model.types) == {"tool_search_tool_bm25_20251119"}
    assert next(each.name for each in found) == HABIT


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_failure_of_a_tool_reaches_the_model(is_async):
    from tests.unit.defer.langchain_agent import HABIT, AIMessage, Scripted, answer, calling

    async with ToolSelector(max_tools=3, embedder="static") as selector:
        model = Scripted(messages=iter([calling(HABIT, "fail"), AIMessage("never mind")]), loaded=[], types=[])
        assert "it failed" in await answer(model, selector.session(), is_async=is_async)
