"""What processes keep of connections and sessions: as it was, and nothing that only looks so."""

import json
from uuid import UUID

import msgspec
import pytest

from riglm.application.session_sharing import session_record, shared_connections
from riglm.application.session_sharing.shared_connections import MAX_PROBLEMS, ConnectionRecord
from riglm.domain import jsonrpc
from riglm.domain.list_plan import ListPlan
from riglm.domain.prediction import Context
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_state import MAX_CALLS, SessionState

HELLO = jsonrpc.request(b"1", "initialize", b'{"protocolVersion":"2025-11-25"}')
LEVEL = jsonrpc.request(b"2", "logging/setLevel", b'{"level":"debug"}')


def subscribe(uri, method="resources/subscribe"):
    return jsonrpc.request(b"3", method, b'{"uri":%b}' % jsonrpc.encode(uri))


@pytest.fixture
def record():
    return ConnectionRecord(
        owner="p", session=UUID(int=1), handshake=HELLO.line.decode(), tickets={"up": b"x: \xff\r\n"}
    )


def test_the_last_word_on_each_subject_counts(record):
    louder = LEVEL.replace(params=b'{"level":"error"}')
    state_requests = (
        record.noted(LEVEL).noted(subscribe("a")).noted(louder).noted(subscribe("a", "resources/unsubscribe"))
    )
    assert list(state_requests.state_requests.values()) == [louder.line.decode()]
    assert record.noted(jsonrpc.request(b"4", "tools/call")) is record


def test_a_client_that_tells_without_end_is_not_kept_without_end(record):
    for number in range(MAX_PROBLEMS + 5):
        record = record.noted(subscribe(str(number)))
    assert len(record.state_requests) == MAX_PROBLEMS


@pytest.mark.parametrize(
    "change",
    [
        {"handshake": "no message"},
        {"handshake": LEVEL.line.decode()},
        {"state_requests": {"": HELLO.line.decode()}},
        {"state_requests": {"": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}'}},
        {"state_requests": {"": '{"jsonrpc":"2.0","id":1,"result":{}}'}},
        {"state_requests": [1]},
        {"session": "no uuid"},
        {"tickets": {"up": 1}},
        {"tickets": {"up": "no base64!"}},
        {"owner": None},
    ],
)
def test_a_connection_that_no_riglm_wrote_is_ignored(record, change):
    fields = {**json.loads(record.encoded()), **change}
    assert shared_connections.decoded(json.dumps(fields).encode()) is None


@pytest.mark.parametrize("plain", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_record_at_all_is_ignored(plain):
    assert shared_connections.decoded(plain) is None
    assert session_record.decoded(plain) is None


def a_session(**more):
    return Session(
        started_at=1.5,
        era=ProtocolEra.MODERN,
        transport=Transport.HTTP,
        method=IdentificationMethod.HANDLE,
        client=ClientInfo(name="c", version="1"),
        client_id="hash",
        principal="whose",
        project="where",
        protocol_version="2026-07-28",
        keys={"k": "v"},
        metadata={"profile": "work"},
        sequence=7,
        **more,
    )


def a_state():
    state = SessionState(
        context=Context(text="about"),
        turn=3,
        turn_key="trace",
        plan=ListPlan(
            candidates=("a", "b", "c"),
            tools=frozenset("ab"),
            search_first=True,
            confidence=0.5,
            predictor="hybrid",
            reason="r",
        ),
        shown=("b", "a"),
        searched={"c"},
        suggested={"d"},
        sent={"d", "e"},
        queries={"c": "words of a search"},
        changes=2,
    )
    state.called("a", 10.0)
    return state


def test_a_session_comes_back_with_how_far_it_has_come():
    session, state = a_session(), a_state()
    record = session_record.decoded(session_record.encoded(session, state))
    assert record is not None
    other, there = record.session(), SessionState()
    assert record.bring(other, there), "the context is new there"
    for name in (
        "id",
        "started_at",
        "era",
        "method",
        "client",
        "client_id",
        "principal",
        "project",
        "keys",
        "metadata",
        "sequence",
    ):
        assert getattr(other, name) == getattr(session, name)
    for name in (
        "calls",
        "turn",
        "turn_key",
        "used_in_turn",
        "plan",
        "shown",
        "searched",
        "suggested",
        "sent",
        "changes",
        "last_at",
    ):
        assert getattr(there, name) == getattr(state, name)
    assert there.context is not None
    assert there.context.text == "about"
    assert not record.bring(other, there), "it is known by now"


def test_the_words_of_searches_stay_with_their_process():
    assert b"words of a search" not in session_record.encoded(a_session(), a_state())


def test_more_than_riglm_would_remember_is_cut():
    fields = msgspec.json.decode(session_record.encoded(a_session(), SessionState()))
    fields["progress"] = {"calls": ["t"] * 10_000, "used_in_turn": {str(number): 0 for number in range(10_000)}}
    record = session_record.decoded(msgspec.json.encode(fields))
    assert record is not None
    state = SessionState()
    record.bring(record.session(), state)
    assert len(state.calls) == MAX_CALLS
    assert len(state.used_in_turn) == 1_000


@pytest.mark.parametrize("change", [{"era": "future"}, {"sequence": "7"}, {"progress": {"calls": [1]}}, {"id": 5}])
def test_a_session_that_no_riglm_wrote_is_ignored(change):
    fields = {**msgspec.json.decode(session_record.encoded(a_session(), None)), **change}
    assert session_record.decoded(msgspec.json.encode(fields)) is None
