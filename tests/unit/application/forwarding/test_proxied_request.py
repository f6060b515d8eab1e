"""One request on its way: one answer, and nothing after it."""

import pytest

from riglm.application.forwarding.proxied_request import NOWHERE, ActiveCall, ProxiedRequest
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.session import ClientInfo, Transport
from riglm.ports.downstream import Caller
from riglm.ports.upstream import EventPosition
from tests.unit.application.fakes import Sink, World

ASKED = jsonrpc.request(b"7", "tools/call", b'{"name":"t"}')
GOOD = jsonrpc.result(b"7", b'{"content":[]}')
NOTE = jsonrpc.notification("notifications/progress", b"{}")
MARK = EventPosition(b"e1")


def exchange(world=None, **hooks):
    sink = Sink()
    call = None
    if world is not None:
        session = world.sessions.of_connection(Caller(transport=Transport.HTTP), ClientInfo(), "")
        call = ActiveCall(
            world.tracking, session, tool="t", upstream="up", arguments=b"{}", found=DiscoveryMethod.LISTED
        )
    return sink, ProxiedRequest(ASKED, sink, call=call, **hooks)


def test_an_answer_passes_once_with_its_status_and_place():
    ended = []
    sink, one = exchange(on_done=ended.append)
    one.related(NOTE, MARK)
    one.primed(MARK)
    one.replied(GOOD, 202, MARK)
    for late in (one.replied, one.related):
        late(NOTE)
    one.failed(ErrorKind.TIMEOUT, "late")
    one.primed(MARK)
    one.cancelled()
    one.interrupted()
    assert sink.got == [("related", NOTE.line, MARK), ("primed", MARK), ("replied", GOOD.line, 202, MARK)]
    assert ended == [one]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ErrorKind.TIMEOUT, b"-32001"), (ErrorKind.UNAVAILABLE, b"-32000"), (ErrorKind.UNKNOWN, b"-32000")],
)
def test_a_failure_becomes_an_error_of_the_request(kind, code):
    sink, one = exchange()
    one.failed(kind, "why")
    line = b'{"jsonrpc":"2.0","id":7,"error":{"code":%b,"message":"why"}}' % code
    assert sink.got == [("replied", line, 200, None)]


@pytest.mark.parametrize(
    ("end", "kind", "code"),
    [
        (lambda one: one.replied(GOOD), None, None),
        (lambda one: one.replied(jsonrpc.result(b"7", b'{"isError":true}')), ErrorKind.TOOL, None),
        (lambda one: one.replied(jsonrpc.error(b"7", -5, "x")), ErrorKind.PROTOCOL, -5),
        (lambda one: one.failed(ErrorKind.TIMEOUT, "x"), ErrorKind.TIMEOUT, -32001),
        (lambda one: one.failed(ErrorKind.PROTOCOL, "unreadable"), ErrorKind.UNAVAILABLE, -32000),
        (lambda one: one.cancelled(), ErrorKind.CANCELLED, None),
    ],
)
def test_a_call_is_recorded_once_by_how_it_ended(end, kind, code):
    world = World()
    _, one = exchange(world)
    end(one)
    one.replied(GOOD)
    one.cancelled()
    (note,) = world.records.of(ToolInvocation)
    assert (note.tool, note.upstream, note.error_kind, note.error_code) == ("t", "up", kind, code)
    assert (note.arguments, note.sequence_number, note.found) == ("{}", 1, DiscoveryMethod.LISTED)


@pytest.mark.parametrize(
    ("result", "kind"), [(b'{"isError":true}', ErrorKind.PROTOCOL), (b'{"content":[]}', None)], ids=["failed", "ran"]
)
def test_only_a_success_shows_that_an_unlisted_name_is_a_tool(result, kind):
    world, told = World(), []
    session = world.sessions.of_connection(Caller(transport=Transport.HTTP), ClientInfo(), "")
    call = ActiveCall(
        world.tracking,
        session,
        tool="t",
        upstream="up",
        arguments=None,
        found=DiscoveryMethod.NAMED,
        is_unlisted=lambda: True,
        on_end=told.append,
    )
    ProxiedRequest(ASKED, Sink(), call=call).replied(jsonrpc.result(b"7", result))
    assert world.records.calls == [("t", "up", kind, DiscoveryMethod.NAMED)]
    assert told == [kind]


def test_a_hook_may_change_the_answer_and_sees_it_once():
    other = jsonrpc.result(b"7", b"{}")
    seen = []
    sink, one = exchange(on_reply=lambda got, message: seen.append((got, message)) or other)
    one.replied(GOOD)
    assert sink.got == [("replied", other.line, 200, None)]
    assert seen == [(one, GOOD)]


def test_a_hook_may_keep_the_answer_back_until_later():
    sink, one = exchange(on_reply=lambda *_: None)
    one.replied(GOOD)
    assert (sink.got, one.done) == ([], False)
    one.replied(GOOD)
    assert sink.got == [("replied", GOOD.line, 200, None)]


def test_a_hook_may_keep_a_failure_back_and_learns_its_kind():
    sink, one = exchange(on_reply=lambda *_: None)
    one.failed(ErrorKind.UNAVAILABLE, "gone")
    assert (sink.got, one.done, one.failure) == ([], False, ErrorKind.UNAVAILABLE)


def test_a_hook_that_fails_changes_nothing(caplog):
    sink, one = exchange(on_reply=lambda *_: 1 / 0)
    one.replied(GOOD)
    assert sink.got == [("replied", GOOD.line, 200, None)]
    assert len(caplog.records) == 1


def test_a_hook_may_change_what_the_server_says_or_leave_it_out():
    sink, one = exchange(on_server_message=lambda message: NOTE if message is GOOD else None)
    one.related(GOOD, MARK)
    one.related(NOTE)
    assert sink.got == [("related", NOTE.line, MARK)]


def test_what_the_server_says_is_left_out_when_it_cannot_be_translated(caplog):
    sink, one = exchange(on_server_message=lambda _: 1 / 0)
    one.related(NOTE)
    assert sink.got == []
    assert len(caplog.records) == 1


def test_after_an_interruption_the_answer_is_recorded_and_goes_nowhere():
    world = World()
    sink, one = exchange(world)
    assert not one.is_interrupted
    one.interrupted()
    assert one.is_interrupted
    one.related(NOTE)
    one.primed(MARK)
    one.interrupted()
    one.replied(GOOD)
    assert sink.got == [("interrupted",)]
    assert [call[2] for call in world.records.calls] == [None]


def test_nowhere_takes_everything():
    NOWHERE.related(NOTE)
    NOWHERE.primed(MARK)
    NOWHERE.replied(GOOD)
    NOWHERE.interrupted()
