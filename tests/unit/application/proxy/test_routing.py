"""Where a request belongs, and what is remembered of it."""

import pytest

from riglm.application.proxy import client_messages, routing
from riglm.application.proxy.client_messages import ServerRequests
from riglm.application.proxy.merging import Directory, MergedListCache
from riglm.application.proxy.routing import Router
from riglm.domain import jsonrpc
from riglm.domain.naming import prefixed
from tests.unit.application.fakes import Server, asks

METHODS = ("tools/call", "prompts/get", "resources/read", "completion/complete", "tasks/get", "vendor/x")


def a_router(naming="prefix", **tools):
    directory = Directory(("a", "b"), MergedListCache(naming))
    for server, names in tools.items():
        directory.learn("tools/list", server, [jsonrpc.Raw(jsonrpc.encode({"name": name})) for name in names])
        directory.learn("prompts/list", server, [jsonrpc.Raw(jsonrpc.encode({"name": name})) for name in names])
    return Router(directory)


def asked_for(name, method="tools/call"):
    return asks(1, method, jsonrpc.encode({"name": name}))


def task(raw):
    return asks(1, "tasks/get", b'{"taskId":%b}' % raw)


@pytest.mark.parametrize(
    "message",
    [
        asks(1, "tools/call", b"[1]"),
        asks(1, "prompts/get", b'{"name":7}'),
        asks(1, "resources/read", b'{"uri":"nobody://"}'),
        asks(1, "resources/read", b"{}"),
        asks(1, "completion/complete", b'{"ref":{"name":"nobody"}}'),
        asks(1, "completion/complete", b'{"ref":{}}'),
        asks(1, "completion/complete", b"{}"),
        asks(1, "tasks/get", b"{}"),
        asks(1, "vendor/x"),
    ],
)
def test_what_nothing_tells_has_no_route(message):
    assert a_router().find(message) is None


def test_tasks_are_remembered_by_the_answers_that_made_them():
    routes = a_router()
    routes.note_task("a", jsonrpc.result(b"1", b'{"task":{"taskId":"t1"}}'))
    routes.note_task("b", jsonrpc.result(b"1", b'{"resultType":"task","taskId":"t2"}'))
    routes.note_task("b", jsonrpc.result(b"1", b'{"content":[{"text":"\\"taskId\\""}]}'))
    routes.note_task("b", jsonrpc.error(b"1", -1, "taskId"))
    assert [routes.find(task(raw)).server for raw in (b'"t1"', b'"t2"')] == ["a", "b"]
    assert routes.find(task(b'"t3"')) is None


def test_only_so_many_tasks_are_remembered_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(routing, "MAX_TASKS", 2)
    routes = a_router()
    for number in (1, 2, 1, 3):
        routes.note_task("a", jsonrpc.result(b"1", b'{"taskId":%d}' % number))
    assert [routes.find(task(b"%d" % number)) is not None for number in (1, 2, 3)] == [True, False, True]


def test_an_unknown_task_or_name_is_refused_and_all_else_may_be_offered():
    routes = a_router()
    methods = ("tools/call", "prompts/get", "tasks/cancel")
    assert {method: (routes.unknown(asked_for("x", method))) for method in methods} == {
        "tools/call": "Unknown tool: x",
        "prompts/get": "Unknown prompt: x",
        "tasks/cancel": "Invalid params: no server has this task",
    }
    assert routes.unknown(asks(1, "prompts/get", b"{}")) is not None
    assert routes.unknown(asks(1, "resources/read", b'{"uri":"x"}')) is None
    assert routes.unknown(asks(1, "vendor/x")) is None


def test_an_error_names_what_would_do_and_no_tool_that_may_not_be_used():
    routes = a_router(a=["t", "u"], b=["t"])
    assert (routes.unknown(asked_for("t"))) == "Unknown tool: t; use a__t or b__t"
    assert (routes.unknown(asked_for("t"), lambda name: name != "a__t")) == "Unknown tool: t; use b__t"
    assert (routes.unknown(asked_for("t"), lambda name: name == "a__t")) == "Unknown tool: t; use a__t"
    assert (routes.unknown(asked_for("u"), lambda _: False)) == "Unknown tool: u"
    assert (routes.unknown(asked_for("u", "prompts/get"), lambda _: False)) == "Unknown prompt: u; use a__u"


@pytest.mark.parametrize(
    ("naming", "called", "denied"),
    [
        ("prefix", "a__t", ("a__t", ("a", "t"))),
        ("on_collision", "t", ("t", ("a", "t"))),
        ("on_collision", "a__t", ("t", ("a", "t"))),
        ("on_collision", "a__t", ("a__t", ("a", "t"))),
        ("none", "t", ("t", ("a", "t"))),
        ("prefix", prefixed("a", "t" * 80), (prefixed("a", "t" * 80), ("a", "t" * 80))),
        ("prefix", "a__" + "t" * 80, (prefixed("a", "t" * 80), ("a", "t" * 80))),
    ],
)
def test_a_call_has_every_name_of_its_tool_and_its_owner(naming, called, denied):
    routes = a_router(naming, a=["t", "t" * 80])
    route = routes.find(asked_for(called))
    name, owner = denied
    assert name in routes._directory.name_patterns(called)
    assert (route.server, route.own_name) == owner


def test_a_name_that_could_not_go_up_as_it_is_has_no_route():
    message = asks(1, "tools/call", rb'{"name":"a__t\ud800"}')
    routes = a_router(a=["t\ufffd"])
    assert routes.find(message) is None
    assert (routes.unknown(message)) == "Unknown tool: a__t\ufffd"
    assert a_router("none", a=["t\ufffd"]).find(asks(1, "tools/call", rb'{"name":"t\ud800"}')).own_name == "t\ufffd"


def test_lists_are_looked_through_for_what_they_can_tell():
    routes = a_router()
    resources = ("resources/list", "resources/templates/list")
    assert {method: routes.lists_for(method) for method in METHODS} == {
        "tools/call": ("tools/list",),
        "prompts/get": ("prompts/list",),
        "resources/read": resources,
        "completion/complete": ("prompts/list", *resources),
        "tasks/get": (),
        "vendor/x": (),
    }


def test_only_so_many_server_requests_are_remembered_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(client_messages, "MAX_SERVER_REQUESTS", 2)
    link, requests = Server("a").connect(None), ServerRequests()
    for number in (1, 2, 3):
        requests.to_client(link, asks(number, "roots/list"))
    assert len(requests) == 2
    for number in (1, 2, 3):
        requests.take_response(jsonrpc.result(b'"a:%d"' % number, b"{}"))
    assert [jsonrpc.decode(line).id for line in link.sent] == [b"2", b"3"]
    assert len(requests) == 0
    requests.take_response(jsonrpc.error(None, -1, "x"))
    assert len(link.sent) == 2


@pytest.mark.parametrize("params", [b"{}", b'{"progressToken":7}', b'{"progressToken":"a:1"}', b"[]"])
def test_progress_of_what_no_server_asked_with_a_token_goes_nowhere(params):
    link, requests = Server("a").connect(None), ServerRequests()
    requests.to_client(link, asks(1, "roots/list", b'{"x":"progressToken","_meta":{}}'))
    requests.take_progress(jsonrpc.notification("notifications/progress", params))
    assert link.sent == []


def test_notices_of_servers_pass_as_they_are():
    link = Server("a").connect(None)
    notice = jsonrpc.notification("notifications/message", b'{"level":"info"}')
    assert ServerRequests().to_client(link, notice) is notice
    nameless = jsonrpc.notification("notifications/cancelled", b"{}")
    assert ServerRequests().to_client(link, nameless) is None
