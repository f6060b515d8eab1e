"""What the meta-tools answer."""

import json

import pytest

from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.tool_lists.list_writer import NAMES
from riglm.domain.schemas.section import PriceSettings
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import read_catalog
from tests.unit.application.scripted_prediction import ALL, Stage, a_catalogue, a_session, names_in

EVERY = dict.fromkeys(NAMES, True)
UNCACHED = PriceSettings(preset="uncached").prices()


def short(**rules):
    """A stage whose lists hold tool01 and tool02, with all meta-tools."""
    stage = Stage(meta_tools=rules.pop("meta_tools", EVERY), **rules)
    stage.learned({"tool01": 0.9, "tool02": 0.5})
    return stage


async def run(stage, session, tool, raw=b"", /, **given):
    """Return the answer and its decoded result, which has one text."""
    answer = await stage.meta_tools.run(session, tool, raw or json.dumps(given).encode())
    if not answer.result:
        return answer, None
    result = json.loads(answer.result)
    assert ([each["type"] for each in result["content"]], "structuredContent" in result) == (["text"], False)
    return answer, result


async def said(stage, session, tool, **given):
    """Return the object that the text of the result holds."""
    _, result = await run(stage, session, tool, **given)
    assert "isError" not in result, result
    return json.loads(result["content"][0]["text"])


async def refusal(stage, session, tool, raw=b"", /, **given):
    """Return the words of a result that says what went wrong."""
    answer, result = await run(stage, session, tool, raw, **given)
    assert (result["isError"], answer.forward, answer.list_changed) == (True, None, False)
    return result["content"][0]["text"]


def named(tools):
    """Return the names of definitions."""
    return [tool["name"] for tool in tools]


@pytest.mark.parametrize(("client", "era"), [("", ProtocolEra.HANDSHAKE), ("x", ProtocolEra.MODERN)])
def test_a_session_is_offered_the_enabled_meta_tools_beside_a_list_that_hides_tools(catalog, client, era):
    stage, session = Stage(meta_tools={"mark_tool": True, "set_context": False}), a_session(client, era)
    stage.learned({"tool01": 0.9, "tool02": 0.5})
    assert names_in(stage.filtering.compose(session, catalog).raw) == [
        "search_available_tools",
        "tool01",
        "tool02",
        "call_tool",
        "mark_tool",
    ]
    assert [stage.meta_tools.owns(session, name) for name in ("call_tool", "set_context", "tool01")] == [
        True,
        False,
        False,
    ]


async def test_a_context_brings_the_definitions_of_hidden_tools_and_the_names_of_listed_ones(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.needs = {"tool09": 0.9, "tool03": 0.5, "tool01": 0.9}
    stage.prediction.finds("tool20", "tool02")
    answer, result = await run(stage, session, "set_context", context="send mail")
    found = json.loads(result["content"][0]["text"])
    assert (found["confidence"], answer.list_changed) == (0.5, False)
    assert set(named(found["tools"])) == {"tool20", "tool09", "tool03"}
    assert found["tools"][0]["description"] == "x" * 400
    assert found["listed"] == ["tool02"]
    assert "unchanged" in found["message"]


async def test_a_context_that_was_answered_before_all_vectors_were_there_says_so(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.is_ready = False
    assert "set the context again later" in (await said(stage, session, "set_context", context="mail"))["message"]


async def test_a_context_that_changes_the_list_names_what_the_next_list_holds(catalog):
    stage, session = short(pinned=["tool20"], prices=UNCACHED), a_session()
    stage.shown(session, catalog)
    stage.prediction.needs = {"tool09": 0.9, "tool03": 0.9}
    answer, result = await run(stage, session, "set_context", context="send mail")
    found = json.loads(result["content"][0]["text"])
    assert answer.list_changed
    assert "has changed" in found["message"]
    assert stage.shown(session, catalog) == found["listed"] == ["tool03", "tool09", "tool20"]
    assert found["tools"] == []


async def test_the_tools_of_a_result_keep_the_upstreams_bytes():
    raw = b'{"name":"a","x":1.0,"inputSchema":{"type":"object","$ref":"#/y"}}'
    rest = b",".join(b'{"name":"b%d","description":"%b"}' % (number, b"x" * 400) for number in range(30))
    for tool, given in (("set_context", "context"), ("search_available_tools", "query")):
        stage, session = Stage(), a_session("x", ProtocolEra.MODERN)
        stage.learned({"b1": 0.9})
        stage.shown(session, read_catalog(b'{"tools":[%b,%b]}' % (raw, rest)))
        stage.prediction.finds("a")
        answer, _ = await run(stage, session, tool, **{given: "c"})
        text = json.loads(answer.result)["content"][0]["text"]
        assert raw.decode()[:-1] in text


async def test_a_search_brings_hidden_tools_with_schema_and_reason_and_listed_ones_by_name(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds("tool09", "tool01", near=("tool10",))
    found = await said(stage, session, "search_available_tools", query="mail")
    assert [(tool["name"], tool["why"]) for tool in found["tools"]] == [("tool09", "tool09 fits")]
    assert found["tools"][0]["description"] == "x" * 400
    assert (found["already_available"], "near" in found) == (["tool01"], False)
    assert stage.prediction.queries == [("mail", 10)]


@pytest.mark.parametrize(
    ("tool", "given", "member"),
    [
        ("search_available_tools", {"query": "mail"}, "already_available"),
        ("set_context", {"context": "mail"}, "listed"),
    ],
)
@pytest.mark.parametrize(("matches", "is_named"), [(("tool01", "tool09"), True), (("tool09", "tool01"), False)])
async def test_a_listed_tool_that_hardly_matches_is_named_only_if_none_matches_better(
    catalog, matches, is_named, tool, given, member
):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds(*matches, probability=0.01)
    found = await said(stage, session, tool, **given)
    assert ("tool01" in found.get(member, ())) is is_named


async def test_a_result_has_at_most_answer_tools_definitions(catalog):
    stage, session = short(answer_tools=2), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds(*ALL[5:15])
    stage.prediction.needs = dict.fromkeys(ALL[5:15], 0.9)
    assert len((await said(stage, session, "search_available_tools", query="mail"))["tools"]) == 2
    assert len((await said(stage, session, "set_context", context="mail"))["tools"]) == 2


async def test_a_search_adds_the_hidden_tools_that_usually_follow_and_counts_them_as_suggested(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds("tool09")
    stage.prediction.next_uses = {"tool20": 0.9, "tool01": 0.9, "tool09": 0.9, "tool21": 0.0001}
    found = await said(stage, session, "search_available_tools", query="mail")
    assert (named(found["tools"]), named(found["often_used_next"])) == (["tool09"], ["tool20"])
    state = stage.filtering.state(session)
    assert (state.searched, state.suggested) == ({"tool09"}, {"tool20"})


async def test_no_definition_is_sent_twice_in_a_session(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.next_uses = {"tool20": 0.9}
    seen = []
    for number in range(4):
        stage.prediction.finds("tool09", "tool10", f"tool{11 + number}")
        stage.prediction.needs = {"tool12": 0.9, f"tool{16 + number}": 0.9}
        found = await said(stage, session, "search_available_tools", query=f"mail {number}")
        told = await said(stage, session, "set_context", context=f"mail {number}")
        seen += named([*found["tools"], *found.get("often_used_next", []), *told["tools"]])
    assert len(seen) == len(set(seen)) == 11
    assert not set(seen) & {"tool01", "tool02"}
    found = await said(stage, session, "search_available_tools", query="again")
    assert (found["tools"], found["already_available"]) == ([], ["tool09", "tool10", "tool14"])


async def test_a_search_that_finds_nothing_says_so_and_names_what_is_near(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds(near=("tool10", "tool11"))
    found = await said(stage, session, "search_available_tools", query="book a flight")
    assert (found["tools"], found["near"]) == ([], ["tool10", "tool11"])
    assert found["message"].startswith("No tool matches.")


async def test_while_meanings_are_not_compared_yet_a_search_does_not_say_that_nothing_matches(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.is_ready = False
    found = await said(stage, session, "search_available_tools", query="book a flight")
    assert "still loading" in found["message"]
    assert "No tool matches" not in found["message"]


async def test_no_result_names_a_denied_or_excluded_tool(catalog):
    stage, session = short(denylist=["TOOL09"]), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds("tool09", "tool10", near=("tool09",))
    stage.prediction.needs = {"tool09": 0.9, "tool11": 0.9}
    stage.prediction.next_uses = {"tool09": 0.9}
    for tool, given, expected in (
        ("search_available_tools", "query", b"tool10"),
        ("set_context", "context", b"tool11"),
    ):
        answer, _ = await run(stage, session, tool, **{given: "mail"})
        assert expected in answer.result
        assert b"tool09" not in answer.result


@pytest.mark.parametrize("raw", [b"{}", b"null", b'""'])
async def test_call_tool_may_do_without_arguments(catalog, raw):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    given = b'{"name":"tool09"}' if raw == b'""' else b'{"name":"tool09","arguments":%b}' % raw
    answer, _ = await run(stage, session, "call_tool", given)
    assert answer.forward == (b'"tool09"', b"{}")


async def test_call_tool_takes_arguments_that_were_written_as_text(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    answer, _ = await run(stage, session, "call_tool", name="tool09", arguments='{"n": 1}')
    assert answer.forward == (b'"tool09"', b'{"n": 1}')


async def test_call_tool_runs_a_meta_tool(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds("tool05")
    found = await said(stage, session, "call_tool", name="search_available_tools", arguments={"query": "mail"})
    assert named(found["tools"]) == ["tool05"]
    inner = {"name": "call_tool", "arguments": {"name": "tool09", "arguments": {"n": 1}}}
    answer, _ = await run(stage, session, "call_tool", **inner)
    assert answer.forward == (b'"tool09"', b'{"n": 1}')
    assert "expects `query`" in await refusal(stage, session, "call_tool", name="search_available_tools")


@pytest.mark.parametrize("name", ["send_mail", "tool07"])
async def test_an_unknown_or_denied_name_brings_the_tools_that_it_matches(catalog, name):
    stage, session = short(denylist=["tool07"]), a_session()
    stage.shown(session, catalog)
    stage.prediction.finds("tool05", "tool07", "tool01")
    assert stage.meta_tools.is_unknown(session, [name])
    assert not stage.meta_tools.is_unknown(session, [name, "tool05"])
    answer = await stage.meta_tools.suggest(session, name)
    result = json.loads(answer.result)
    assert result["isError"]
    found = json.loads(result["content"][0]["text"])
    example = '{"name": "call_tool", "arguments": {"name": "tool05", "arguments": {}}}'
    assert found["message"] == (
        f"Unknown tool: {name}. Call one of these with call_tool, for example {example}: tool05, tool01."
    )
    assert named(found["tools"]) == ["tool05"]
    assert found["already_available"] == ["tool01"]
    assert answer.selection.shown == ("tool05",)


async def test_an_unknown_name_that_nothing_matches_is_an_error_that_asks_for_a_search(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    answer = await stage.meta_tools.suggest(session, "fly")
    found = json.loads(json.loads(answer.result)["content"][0]["text"])
    assert found == {"message": "Unknown tool: fly. Search for what the tool should do.", "tools": []}


async def test_call_tool_reaches_an_upstreams_tool_with_the_name_of_one_of_riglms():
    stage, session = short(), a_session()
    stage.shown(session, a_catalogue("set_context", *ALL))
    answer, _ = await run(stage, session, "call_tool", name="set_context", arguments={"x": 1})
    assert answer.forward == (b'"set_context"', b'{"x": 1}')


async def test_the_name_that_call_tool_is_given_goes_on_sign_by_sign(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    for raw in (rb'"t\ud800x"', rb'"t\u006fol"', b'" t"'):
        answer, _ = await run(stage, session, "call_tool", b'{"name":%b}' % raw)
        assert answer.forward == (raw, b"{}")


async def test_results_name_call_tool_because_hosts_refuse_names_that_are_not_listed():
    stage, session = short(), a_session()
    stage.shown(session, a_catalogue("mark_tool", *ALL))
    stage.prediction.finds("mark_tool", "tool05")
    found = await said(stage, session, "search_available_tools", query="mail")
    assert named(found["tools"]) == ["mark_tool", "tool05"]
    stage.prediction.finds("tool06")
    context = await said(stage, session, "set_context", context="send mail")
    assert named(context["tools"]) == ["tool06"]
    for result in (found, context):
        assert "Call tools that are not listed with call_tool." in result["message"]
        assert "by name" not in result["message"]


async def test_what_only_call_tool_reaches_is_not_sent_without_it():
    stage, session = short(meta_tools={**EVERY, "call_tool": False}), a_session()
    stage.shown(session, a_catalogue("mark_tool", "call_tool", *ALL))
    stage.prediction.needs = {"mark_tool": 0.9, "call_tool": 0.9, "tool03": 0.9}
    found = await said(stage, session, "set_context", context="send mail")
    assert sorted(named(found["tools"])) == ["call_tool", "tool03"]
    assert "with call_tool" not in found["message"]
    stage.prediction.finds("mark_tool", "tool05", near=("mark_tool",))
    found = await said(stage, session, "search_available_tools", query="mail")
    assert (named(found["tools"]), "near" in found) == (["tool05"], False)


async def test_a_tool_is_marked_for_the_context(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    await stage.about(session, "mail", "tool01")
    for relevant in (True, False):
        await said(stage, session, "mark_tool", name="tool09", relevant=relevant)
    assert stage.prediction.marks == [("tool09", True), ("tool09", False)]


async def test_a_mark_without_a_context_or_for_no_tool_is_refused(catalog):
    stage, session = short(denylist=["tool08"]), a_session()
    stage.shown(session, catalog)
    assert "set_context" in await refusal(stage, session, "mark_tool", name="tool09", relevant=True)
    await stage.about(session, "mail", "tool01")
    for name in ("invented", "tool08"):
        assert await refusal(stage, session, "mark_tool", name=name, relevant=True) == f"Unknown tool: {name}"
    assert stage.prediction.marks == []


async def test_the_status_carries_the_signal_and_how_the_session_stands(catalog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    found = await said(stage, session, "index_status")
    assert stage.prediction.is_begun
    assert (found["embeddings"], found["advice"]) == ({"provider": "fastembed"}, "ask")
    assert found["session"] == {
        "surface": "dynamic",
        "mode": "enforce",
        "available": 30,
        "listed": 2,
        "has_context": False,
        "context_confidence": 0.0,
        "list_changes": 0,
    }


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("set_context", b"", "`context` to be a text that is not empty"),
        ("set_context", b'{"context":7}', "`context` to be a text that is not empty"),
        ("set_context", b'{"context":"  "}', "`context` to be a text that is not empty"),
        ("set_context", b"[1]", "set_context expects an object of arguments"),
        ("search_available_tools", b"{}", "`query` to be a text that is not empty"),
        ("search_available_tools", b'{"query":null}', "`query` to be a text that is not empty"),
        ("call_tool", b"{}", "`name` to be a text that is not empty"),
        ("call_tool", b'{"name":"a","arguments":[1]}', "`arguments` to be an object"),
        ("call_tool", b'{"name":"a","arguments":"no json"}', "`arguments` to be an object"),
        ("mark_tool", b'{"name":"a"}', "`relevant` to be true or false"),
        ("mark_tool", b'{"name":"a","relevant":"yes"}', "`relevant` to be true or false"),
    ],
)
async def test_bad_arguments_are_answered_by_what_is_expected(catalog, tool, arguments, words):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    assert words in await refusal(stage, session, tool, arguments)


@pytest.mark.parametrize("tool", ["set_context", "search_available_tools", "index_status"])
async def test_a_prediction_that_fails_is_said_in_the_result_and_logged(catalog, tool, caplog):
    stage, session = short(), a_session()
    stage.shown(session, catalog)
    stage.prediction.error = ZeroDivisionError("the model")
    assert "failed inside riglm" in await refusal(stage, session, tool, context="a", query="a")
    assert caplog.records[-1].exc_info[1] is stage.prediction.error


class Voice:
    """Says by whom it was asked what."""

    async def retrieve(self, principal, arguments):
        return b'{"content":[],"structuredContent":{"by":"%b","asked":%b}}' % (principal.encode(), arguments)


BY_AN_ALIAS = ("snip", "inner_voice.retrieve")


@pytest.mark.parametrize("denied", ["snip", "INNER_VOICE.*"])
async def test_what_is_denied_by_one_of_its_names_is_denied_by_all_and_no_server_is_asked_instead(catalog, denied):
    stage, session = short(denylist=[denied]), a_session()
    tools = MetaTools(stage.filtering, Voice(), BY_AN_ALIAS)
    stage.shown(session, catalog)
    for name in BY_AN_ALIAS:
        assert tools.is_denied(name)
        assert not tools.owns(session, name)
        assert tools.withholds(session, name)
    assert not tools.withholds(session, "tool09")
    stage.filtering.know(session, a_catalogue(*BY_AN_ALIAS))
    assert not any(tools.withholds(session, name) for name in BY_AN_ALIAS)


@pytest.mark.parametrize("voice", [Voice(), None], ids=["on", "off"])
async def test_call_tool_sends_no_question_for_the_voice_to_a_server_by_any_name(catalog, voice):
    stage, session = short(), a_session()
    tools = MetaTools(stage.filtering, voice, BY_AN_ALIAS)
    stage.shown(session, catalog)
    for name in BY_AN_ALIAS:
        answer = await tools.run(session, "call_tool", json.dumps({"name": name, "arguments": {}}).encode())
        assert answer.forward is None
        assert "call it directly" in json.loads(answer.result)["content"][0]["text"]
