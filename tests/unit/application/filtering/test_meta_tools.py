"""What riglm's own tools answer."""

import json

import pytest

from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.lists.meta_tool_definitions import DEFINITIONS, NAMES, PROMINENT_SEARCH
from riglm.domain.schemas.settings import RESERVED_NAMES
from riglm.domain.session import Era
from riglm.domain.tool import read_catalogue
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in

ALL = [f"tool{number:02}" for number in range(30)]


@pytest.fixture
def catalogue():
    return a_catalogue(count=30)


async def run(stage, session, tool, raw=b"", /, **given):
    """The answer, with its result decoded and both its halves compared."""
    answer = await stage.meta_tools.run(session, tool, raw or json.dumps(given).encode())
    if not answer.result:
        return answer, None
    result = json.loads(answer.result)
    if "structuredContent" in result:
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return answer, result


async def said(stage, session, tool, **given):
    """The structured content of the answer."""
    _, result = await run(stage, session, tool, **given)
    assert "isError" not in result, result
    return result["structuredContent"]


async def refusal(stage, session, tool, raw=b"", /, **given):
    """The words of an answer that says what went wrong."""
    answer, result = await run(stage, session, tool, raw, **given)
    assert (result["isError"], answer.forward, answer.list_changed) == (True, None, False)
    return result["content"][0]["text"]


def test_every_definition_is_sound_and_its_name_reserved():
    for name, raw in {**DEFINITIONS, "": PROMINENT_SEARCH}.items():
        definition = json.loads(raw)
        assert definition["name"] == (name or "search_available_tools")
        assert definition["inputSchema"]["type"] == "object"
        assert definition["description"]
    assert set(NAMES) == set(DEFINITIONS) == RESERVED_NAMES - {"riglm"}


def test_a_session_is_offered_those_that_are_switched_on(catalogue):
    stage, session = Stage(meta_tools={"mark_tool": False, "set_context": False}), a_session()
    stage.shown(session, catalogue)
    assert names_in(stage.filtering.compose(session, catalogue).raw) == [
        *ALL,
        "search_available_tools",
        "call_tool",
        "index_status",
    ]
    assert [stage.meta_tools.owns(session, name) for name in ("call_tool", "mark_tool", "tool01")] == [
        True,
        False,
        False,
    ]


async def test_a_new_context_says_what_is_listed_and_gives_the_tools_for_it(catalogue):
    stage, session = Stage(answer_tools=2), a_session()
    stage.shown(session, catalogue)
    stage.prediction.likes = ("tool09", "tool03", "tool05")
    answer, result = await run(stage, session, "set_context", context="send mail")
    found = result["structuredContent"]
    assert (found["listed"], found["listed_count"]) == (["tool03", "tool05", "tool09"], 3)
    assert (found["confidence"], found["list_changed"], answer.list_changed) == (0.5, True, True)
    assert [tool["name"] for tool in found["tools"]] == ["tool09", "tool03"]
    assert found["tools"][0]["description"] == "x" * 400
    assert "3 tools now" in found["message"]


async def test_what_a_context_names_as_listed_is_what_the_next_list_shows(catalogue):
    stage, session = Stage(pinned=["tool20"]), a_session()
    stage.shown(session, catalogue)
    stage.prediction.likes = ("tool09", "tool03", "tool05")
    found = await said(stage, session, "set_context", context="send mail")
    assert stage.shown(session, catalogue) == found["listed"]


async def test_the_tools_of_a_context_keep_the_upstreams_bytes():
    raw = b'{"name":"a","x":1.0,"inputSchema":{"type":"object","$ref":"#/y"}}'
    stage, session = Stage(), a_session("x", Era.MODERN)
    stage.shown(session, read_catalogue(b'{"tools":[%b]}' % raw))
    stage.prediction.likes = ("a",)
    answer, _ = await run(stage, session, "set_context", context="c")
    assert b'"tools":[%b]' % raw in answer.result


async def test_on_a_stable_surface_a_context_gives_tools_and_leaves_the_list_alone(catalogue):
    stage, session = Stage(), a_session("x", Era.MODERN)
    stage.prediction.warm = ("tool01",)
    stage.prediction.likes = ("tool09",)
    stage.shown(session, catalogue)
    answer, result = await run(stage, session, "set_context", context="send mail")
    found = result["structuredContent"]
    assert "list_changed" not in found
    assert not answer.list_changed
    assert (found["listed"], found["tools"][0]["name"]) == (["tool01"], "tool09")


async def test_a_context_of_which_little_was_learned_gives_what_a_search_for_it_finds(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.likes, stage.prediction.confidence = ("tool09",), 0.1
    stage.prediction.finds("tool20", "tool21")
    found = await said(stage, session, "set_context", context="send mail")
    assert [tool["name"] for tool in found["tools"]] == ["tool20", "tool21"]
    stage.prediction.finds()
    found = await said(stage, session, "set_context", context="read mail")
    assert found["tools"][0]["name"] == "tool09"
    stage.prediction.confidence = 0.9
    stage.prediction.finds("tool20")
    found = await said(stage, session, "set_context", context="sort mail")
    assert found["tools"][0]["name"] == "tool09"


async def test_a_long_list_is_counted_and_not_spelt_out():
    stage, session = Stage(), a_session()
    stage.shown(session, a_catalogue(count=101))
    found = await said(stage, session, "set_context", context="anything")
    assert (found["listed_count"], "listed" in found, found["tools"]) == (101, False, [])


async def test_a_search_gives_whole_tools_hidden_ones_too_and_says_why(catalogue):
    stage, session = Stage(cold_start_limit=1), a_session()
    stage.shown(session, catalogue)
    stage.prediction.finds("tool09", "tool00", near=("tool10",))
    found = await said(stage, session, "search_available_tools", query="mail")
    assert [(tool["name"], tool["why"], tool["listed"]) for tool in found["tools"]] == [
        ("tool09", "tool09 fits", False),
        ("tool00", "tool00 fits", True),
    ]
    assert found["tools"][0]["description"] == "x" * 400
    assert (found["near"], stage.prediction.queries) == (["tool10"], [("mail", 10)])


async def test_what_a_search_answer_names_counts_as_searched_and_what_a_context_answer_names_as_suggested(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.finds("tool09")
    answer, _ = await run(stage, session, "search_available_tools", query="mail")
    assert (answer.selection.shown, answer.selection.surface) == (("tool09",), "search")
    stage.prediction.likes = ("tool10", "tool11", "tool12")
    answer, _ = await run(stage, session, "set_context", context="mail")
    assert (answer.selection.shown[:2], answer.selection.surface) == (("tool10", "tool11"), "context")
    state = stage.filtering.state(session)
    assert state.searched == {"tool09"}
    assert state.suggested >= {"tool10", "tool11", "tool12"}
    assert "tool09" not in state.suggested


async def test_the_last_query_that_found_a_tool_is_there_to_be_learned_with_its_call(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.finds("tool09", "tool10")
    await said(stage, session, "search_available_tools", query="mail")
    stage.prediction.finds("tool10")
    await said(stage, session, "search_available_tools", query="post")
    assert stage.filtering.state(session).queries == {"tool09": "mail", "tool10": "post"}


async def test_a_search_that_finds_nothing_says_so_and_names_what_is_near(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.finds(near=("tool10", "tool11"))
    found = await said(stage, session, "search_available_tools", query="book a flight")
    assert (found["tools"], found["near"]) == ([], ["tool10", "tool11"])
    assert found["message"].startswith("No tool fits this. Closest by name: tool10, tool11.")


async def test_no_answer_names_a_denied_or_excluded_tool(catalogue):
    stage, session = Stage(denylist=["TOOL09"]), a_session()
    stage.shown(session, catalogue)
    stage.prediction.finds("tool09", "tool10", near=("tool09",))
    stage.prediction.likes = ("tool09", "tool10")
    for tool, given in (("search_available_tools", "query"), ("set_context", "context")):
        answer, _ = await run(stage, session, tool, **{given: "mail"})
        assert b"tool10" in answer.result
        assert b"tool09" not in answer.result


async def test_call_tool_passes_name_and_arguments_on(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    raw = b'{"name":"tool09","arguments":{"n":1.0}}'
    answer, _ = await run(stage, session, "call_tool", raw)
    assert answer.forward == (b'"tool09"', b'{"n":1.0}')


@pytest.mark.parametrize("raw", [b"{}", b"null", b'""'])
async def test_call_tool_may_do_without_arguments(catalogue, raw):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    given = b'{"name":"tool09"}' if raw == b'""' else b'{"name":"tool09","arguments":%b}' % raw
    answer, _ = await run(stage, session, "call_tool", given)
    assert answer.forward == (b'"tool09"', b"{}")


async def test_call_tool_takes_arguments_that_were_written_as_text(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    answer, _ = await run(stage, session, "call_tool", name="tool09", arguments='{"n": 1}')
    assert answer.forward == (b'"tool09"', b'{"n": 1}')


async def test_call_tool_passes_on_names_that_no_list_has(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    answer, _ = await run(stage, session, "call_tool", name="new_tool")
    assert answer.forward == (b'"new_tool"', b"{}")


async def test_call_tool_leaves_a_denied_tool_to_the_decision_about_calls(catalogue):
    stage, session = Stage(denylist=["tool09"]), a_session()
    stage.shown(session, catalogue)
    answer, _ = await run(stage, session, "call_tool", name="Tool-09")
    assert answer.forward == (b'"Tool-09"', b"{}")
    assert stage.filtering.denial(session, "Tool-09") is not None


@pytest.mark.parametrize("name", NAMES)
async def test_call_tool_does_not_call_riglms_own_tools(catalogue, name):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert "call it directly" in await refusal(stage, session, "call_tool", name=name)


async def test_call_tool_reaches_an_upstreams_tool_with_the_name_of_one_of_riglms():
    stage, session = Stage(), a_session()
    stage.shown(session, a_catalogue("a", "set_context"))
    answer, _ = await run(stage, session, "call_tool", name="set_context", arguments={"x": 1})
    assert answer.forward == (b'"set_context"', b'{"x": 1}')


async def test_the_name_that_call_tool_is_given_goes_on_sign_by_sign(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    for raw in (rb'"t\ud800x"', rb'"t\u006fol"', b'" t"'):
        answer, _ = await run(stage, session, "call_tool", b'{"name":%b}' % raw)
        assert answer.forward == (raw, b"{}")


async def test_an_upstreams_tool_with_a_name_of_riglms_is_named_as_what_call_tool_reaches():
    stage, session = Stage(), a_session()
    stage.prediction.likes = ("mark_tool", "a")
    stage.shown(session, a_catalogue("a", "mark_tool", "b"))
    found = await said(stage, session, "set_context", context="send mail")
    assert (found["listed"], found["listed_count"]) == (["a", "b"], 2)
    assert [tool["name"] for tool in found["tools"]] == ["mark_tool", "a", "b"]
    assert "By call_tool alone: mark_tool;" in found["message"]
    stage.prediction.finds("mark_tool", "b")
    found = await said(stage, session, "search_available_tools", query="mail")
    assert [(tool["name"], tool["listed"]) for tool in found["tools"]] == [("mark_tool", False), ("b", True)]
    assert "By call_tool alone: mark_tool;" in found["message"]
    stage.prediction.finds("b")
    found = await said(stage, session, "search_available_tools", query="mail")
    assert "alone" not in found["message"]


async def test_what_only_call_tool_reaches_is_not_offered_without_it():
    stage, session = Stage(meta_tools={"call_tool": False}), a_session()
    stage.prediction.likes = ("mark_tool", "call_tool", "a")
    stage.shown(session, a_catalogue("a", "mark_tool", "call_tool", "b"))
    found = await said(stage, session, "set_context", context="send mail")
    assert [tool["name"] for tool in found["tools"]] == ["call_tool", "a", "b"]
    assert found["listed"] == ["a", "call_tool"]
    assert "by call_tool" not in found["message"]
    stage.prediction.finds("mark_tool", "b", near=("mark_tool",))
    found = await said(stage, session, "search_available_tools", query="mail")
    assert ([tool["name"] for tool in found["tools"]], found["near"]) == (["b"], [])


async def test_a_tool_is_marked_for_the_context(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01")
    for relevant in (True, False):
        await said(stage, session, "mark_tool", name="tool09", relevant=relevant)
    assert stage.prediction.marks == [("tool09", True), ("tool09", False)]


async def test_a_mark_without_a_context_or_for_no_tool_is_refused(catalogue):
    stage, session = Stage(denylist=["tool08"]), a_session()
    stage.shown(session, catalogue)
    assert "set_context" in await refusal(stage, session, "mark_tool", name="tool09", relevant=True)
    await stage.about(session, "mail", "tool01")
    for name in ("invented", "tool08"):
        assert await refusal(stage, session, "mark_tool", name=name, relevant=True) == f"Unknown tool: {name}"
    assert stage.prediction.marks == []


async def test_the_status_carries_the_signal_and_how_the_session_stands(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    found = await said(stage, session, "index_status")
    assert (found["embeddings"], found["advice"]) == ({"provider": "fastembed"}, "ask")
    assert found["session"] == {
        "surface": "dynamic",
        "mode": "enforce",
        "available": 30,
        "listed": 30,
        "has_context": False,
        "context_confidence": 0.0,
        "list_changes": 0,
    }


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("set_context", b"", "`context` is missing"),
        ("set_context", b'{"context":7}', "`context` is no text"),
        ("set_context", b'{"context":"  "}', "`context` is empty"),
        ("set_context", b"[1]", "set_context expects an object of arguments"),
        ("search_available_tools", b"{}", "`query` is missing"),
        ("search_available_tools", b'{"query":null}', "`query` is no text"),
        ("call_tool", b"{}", "`name` is missing"),
        ("call_tool", b'{"name":"a","arguments":[1]}', "`arguments` to be an object"),
        ("call_tool", b'{"name":"a","arguments":"no json"}', "`arguments` to be an object"),
        ("mark_tool", b'{"name":"a"}', "`relevant` to be true or false"),
        ("mark_tool", b'{"name":"a","relevant":"yes"}', "`relevant` to be true or false"),
    ],
)
async def test_bad_arguments_are_answered_by_what_is_expected(catalogue, tool, arguments, words):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert words in await refusal(stage, session, tool, arguments)


@pytest.mark.parametrize(("tool", "key"), [("set_context", "context"), ("search_available_tools", "query")])
async def test_before_any_list_there_is_nothing_to_find(tool, key):
    assert "No tools are known yet" in await refusal(Stage(), a_session(), tool, **{key: "mail"})


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\x00\x07\x1b", "\ud83d", "😀"])
async def test_odd_texts_are_searched_like_others(catalogue, text):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.finds("tool01")
    found = await said(stage, session, "search_available_tools", query=text)
    assert found["tools"][0]["name"] == "tool01"


@pytest.mark.parametrize("tool", ["set_context", "search_available_tools", "index_status"])
async def test_a_prediction_that_fails_is_said_in_the_result_and_logged(catalogue, tool, caplog):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.error = ZeroDivisionError("the model")
    assert "failed inside riglm" in await refusal(stage, session, tool, context="a", query="a")
    assert caplog.records[-1].exc_info[1] is stage.prediction.error


class Voice:
    """Says by whom it was asked what."""

    async def retrieve(self, principal, arguments):
        return b'{"content":[],"structuredContent":{"by":"%b","asked":%b}}' % (principal.encode(), arguments)


@pytest.mark.parametrize("names", [("inner_voice.retrieve",), ("alias", "inner_voice.retrieve")])
async def test_the_inner_voice_is_asked_by_every_name_whatever_the_surface(catalogue, names):
    stage, session = Stage(mode="shadow"), a_session()
    tools = MetaTools(stage.filtering, Voice(), names)
    for name in names:
        assert tools.owns(session, name)
        assert tools.is_confidential(name)
        answer = await tools.run(session, name, b'{"query":"q"}')
        assert json.loads(answer.result)["structuredContent"]["asked"] == {"query": "q"}
    assert not tools.is_about_lists(names[0])


async def test_a_server_s_own_tool_goes_before_a_voice_that_is_off_or_listed_as_something_else():
    stage, session = Stage(), a_session()
    off = MetaTools(stage.filtering)
    assert off.owns(session, "inner_voice.retrieve")
    assert off.is_about_lists("inner_voice.retrieve")
    answer = await off.run(session, "inner_voice.retrieve", b"{}")
    assert '"code":"feature_disabled"' in json.loads(answer.result)["content"][0]["text"]
    stage.filtering.know(session, a_catalogue("inner_voice.retrieve", "other"))
    assert not off.owns(session, "inner_voice.retrieve")
    assert not MetaTools(stage.filtering, Voice(), ("alias", "inner_voice.retrieve")).owns(
        session, "inner_voice.retrieve"
    )
    assert MetaTools(stage.filtering, Voice()).owns(session, "inner_voice.retrieve")


async def test_call_tool_reaches_a_server_s_tool_that_has_the_name_of_the_voice():
    stage, session = Stage(), a_session()
    tools = MetaTools(stage.filtering, Voice())
    given = b'{"name":"inner_voice.retrieve","arguments":{}}'
    stage.shown(session, a_catalogue(count=30))
    assert "call it directly" in json.loads((await tools.run(session, "call_tool", given)).result)["content"][0]["text"]
    stage.shown(session, a_catalogue("inner_voice.retrieve", *ALL))
    assert (await tools.run(session, "call_tool", given)).forward == (b'"inner_voice.retrieve"', b"{}")


BY_AN_ALIAS = ("snip", "inner_voice.retrieve")


@pytest.mark.parametrize("denied", ["snip", "INNER_VOICE.*"])
async def test_what_is_denied_by_one_of_its_names_is_denied_by_all_and_no_server_is_asked_instead(catalogue, denied):
    stage, session = Stage(denylist=[denied]), a_session()
    tools = MetaTools(stage.filtering, Voice(), BY_AN_ALIAS)
    stage.shown(session, catalogue)
    for name in BY_AN_ALIAS:
        assert tools.is_denied(name)
        assert not tools.owns(session, name)
        assert tools.withholds(session, name)
    assert not tools.withholds(session, "tool09")
    stage.filtering.know(session, a_catalogue(*BY_AN_ALIAS))
    assert not any(tools.withholds(session, name) for name in BY_AN_ALIAS)


@pytest.mark.parametrize("voice", [Voice(), None], ids=["on", "off"])
async def test_call_tool_sends_no_question_for_the_voice_to_a_server_by_any_name(catalogue, voice):
    stage, session = Stage(), a_session()
    tools = MetaTools(stage.filtering, voice, BY_AN_ALIAS)
    stage.shown(session, catalogue)
    for name in BY_AN_ALIAS:
        answer = await tools.run(session, "call_tool", json.dumps({"name": name, "arguments": {}}).encode())
        assert answer.forward is None
        assert "call it directly" in json.loads(answer.result)["content"][0]["text"]
