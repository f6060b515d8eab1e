"""The ladder by which sessions are recognised, and how long they live."""

from dataclasses import replace

import pytest

from riglm.domain.session import ClientInfo, IdentificationConfidence, IdentificationMethod, Transport
from riglm.ports.analytics import SessionClosed
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import World

GAP = 1800.0
STDIO = Caller(transport=Transport.STDIO)
HTTP = Caller(transport=Transport.HTTP, address="10.0.0.1")
ANNA = Caller(transport=Transport.HTTP, principal="anna", address="10.0.0.1")
BERT = Caller(transport=Transport.HTTP, principal="bert", address="10.0.0.1")
CODE = ClientInfo(name="code", version="1")
KEYS = ("vscode.conversationId", "threadId", "openai/session")
ONE = b'{"threadId":"one"}'
TWO = b'{"threadId":"two"}'
VERSION = "2025-11-25"


def world(**evidence):
    return World(meta_keys=KEYS, environment_keys=("CODE_SESSION", "OTHER_SESSION"), idle_gap=GAP, **evidence)


def handled(caller, handle="h"):
    return Caller(transport=caller.transport, principal=caller.principal, address=caller.address, handle=handle)


# --- the ladder, first hit wins ---


@pytest.mark.parametrize(
    ("caller", "environment", "meta", "method", "confidence"),
    [
        (handled(STDIO), {"CODE_SESSION": "e"}, ONE, IdentificationMethod.HANDLE, IdentificationConfidence.EXACT),
        (handled(HTTP), {}, ONE, IdentificationMethod.HANDLE, IdentificationConfidence.EXACT),
        (STDIO, {"CODE_SESSION": "e"}, ONE, IdentificationMethod.META_KEY, IdentificationConfidence.EXACT),
        (ANNA, {}, ONE, IdentificationMethod.META_KEY, IdentificationConfidence.EXACT),
        (STDIO, {"CODE_SESSION": "e"}, b"{}", IdentificationMethod.ENVIRONMENT, IdentificationConfidence.EXACT),
        (STDIO, {"CODE_SESSION": ""}, b"", IdentificationMethod.PROCESS, IdentificationConfidence.CONNECTION),
        (ANNA, {"CODE_SESSION": "e"}, b"", IdentificationMethod.PRINCIPAL, IdentificationConfidence.INFERRED),
        (HTTP, {"CODE_SESSION": "e"}, b"", IdentificationMethod.ADDRESS, IdentificationConfidence.WEAK),
    ],
)
def test_a_modern_request_is_recognised_by_its_best_evidence(caller, environment, meta, method, confidence):
    sessions = world(environment=environment).sessions
    session = sessions.of_request(caller, CODE, "2026-07-28", meta)
    assert (session.method, session.confidence) == (method, confidence)
    assert sessions.of_request(caller, CODE, "2026-07-28", meta) is session


@pytest.mark.parametrize(
    ("caller", "environment", "method"),
    [
        (handled(STDIO), {"CODE_SESSION": "e"}, IdentificationMethod.HANDLE),
        (STDIO, {"OTHER_SESSION": "e"}, IdentificationMethod.ENVIRONMENT),
        (STDIO, {}, IdentificationMethod.PROCESS),
        (ANNA, {"CODE_SESSION": "e"}, IdentificationMethod.CONNECTION),
        (Caller(transport=Transport.SSE), {}, IdentificationMethod.CONNECTION),
    ],
)
def test_a_connection_is_recognised_by_its_best_evidence(caller, environment, method):
    assert world(environment=environment).sessions.of_connection(caller, CODE, VERSION).method is method


def test_what_was_sent_is_stored_as_keyed_hashes_only():
    w = world()
    caller = Caller(transport=Transport.HTTP, principal="anna", address="10.0.0.1", handle="secret-handle")
    session = w.sessions.of_request(caller, CODE, "", b'{"threadId":"secret-thread"}')
    for clear in ("anna", "secret", "10.0.0.1"):
        assert clear not in repr(session)
    w.sessions.of_call(session, caller, b'{"threadId":"secret-thread"}')
    assert set(session.keys) == {"handle", "threadId"}


# --- whose session ---


@pytest.mark.parametrize("meta", [ONE, b""])
@pytest.mark.parametrize("handle", ["", "h"])
def test_one_principal_never_finds_the_session_of_another(meta, handle):
    sessions = world().sessions
    callers = [handled(ANNA, handle), handled(BERT, handle), handled(HTTP, handle)]
    found = [sessions.of_request(caller, CODE, "", meta) for caller in callers]
    assert len({session.id for session in found}) == 3


def test_guesses_tell_clients_and_addresses_apart():
    sessions = world().sessions
    elsewhere = Caller(transport=Transport.HTTP, address="10.0.0.2")
    found = [
        sessions.of_request(ANNA, CODE, "", b""),
        sessions.of_request(ANNA, ClientInfo(name="other"), "", b""),
        sessions.of_request(HTTP, CODE, "", b""),
        sessions.of_request(HTTP, ClientInfo(name="other"), "", b""),
        sessions.of_request(elsewhere, CODE, "", b""),
    ]
    assert len({session.id for session in found}) == 5


@pytest.mark.parametrize("caller", [ANNA, HTTP])
def test_a_guessed_session_with_calls_ends_when_a_list_is_requested_on_a_new_connection(caller):
    sessions = world().sessions

    def request(connection, *, starts=False, meta=b""):
        return sessions.of_request(replace(caller, connection=connection), CODE, "2026-07-28", meta, starts=starts)

    first = request("1", starts=True)
    assert request("2", starts=True) is first  # it has made no call yet
    first.next_sequence_number()
    assert [request("1", starts=True), request("3")] == [first, first]
    second = request("4", starts=True)
    assert second is not first
    assert first.ended_at is not None
    keyed = request("4", starts=True, meta=ONE)
    keyed.next_sequence_number()
    assert request("5", starts=True, meta=ONE) is keyed


# --- better evidence in a call ---


@pytest.mark.parametrize(("caller", "environment"), [(STDIO, {}), (STDIO, {"CODE_SESSION": "e"}), (HTTP, {})])
def test_the_first_conversation_key_names_the_connection_s_session_and_further_ones_are_their_own(caller, environment):
    w = world(environment=environment)
    base = w.sessions.of_connection(caller, CODE, VERSION)
    assert w.sessions.of_call(base, caller, b"") is base
    assert w.sessions.of_call(base, caller, ONE) is base
    assert base.method is IdentificationMethod.META_KEY
    other = w.sessions.of_call(base, caller, TWO)
    assert other is not base
    assert (other.method, other.client, other.protocol_version) == (IdentificationMethod.META_KEY, CODE, VERSION)
    assert w.sessions.of_call(base, caller, ONE) is base
    assert w.sessions.of_call(base, caller, TWO) is other


@pytest.mark.parametrize("environment", [{}, {"CODE_SESSION": "e"}])
def test_a_conversation_key_upgrades_earlier_modern_requests_on_the_same_pipe(environment):
    sessions = world(environment=environment).sessions
    listed = sessions.of_request(STDIO, CODE, "", b"")
    assert sessions.of_request(STDIO, CODE, "", ONE) is listed
    assert listed.method is IdentificationMethod.META_KEY
    assert sessions.of_request(STDIO, CODE, "", b"") is listed
    assert sessions.of_request(STDIO, CODE, "", TWO) is not listed


# --- how long a session lives ---


@pytest.mark.parametrize("environment", [{"CODE_SESSION": "e"}, {}])
def test_a_session_that_a_connection_holds_is_not_over_however_long_it_is_silent(environment):
    w = world(environment=environment)
    caller = STDIO if environment else handled(HTTP)
    one, other = (w.sessions.of_connection(caller, CODE, VERSION) for _ in range(2))
    assert one is other
    w.sessions.closed(one)
    w.clock.now += 10 * GAP
    w.sessions.sweep()
    assert one.ended_at is None
    w.sessions.closed(other)
    left_at = w.clock.now
    w.clock.now += GAP
    w.sessions.sweep()
    assert one.ended_at is None
    w.clock.now += 1
    w.sessions.sweep()
    assert one.ended_at == left_at
    assert w.records.closed == [one.id]
    assert len(w.sessions) == 0


def test_an_upgraded_session_is_ended_once_and_only_after_its_connection():
    w = world(environment={"CODE_SESSION": "e"})
    base = w.sessions.of_connection(STDIO, CODE, VERSION)
    w.sessions.of_call(base, STDIO, ONE)
    w.clock.now += 10 * GAP
    w.sessions.sweep()
    assert base.ended_at is None
    w.sessions.closed(base)
    w.clock.now += GAP + 1
    w.sessions.sweep()
    w.sessions.sweep()
    assert w.records.closed == [base.id]
    assert w.sessions.of_request(STDIO, CODE, "", ONE) is not base


@pytest.mark.parametrize(("caller", "meta"), [(ANNA, b""), (HTTP, b""), (ANNA, ONE), (handled(ANNA), b"")])
def test_a_modern_session_is_over_after_the_idle_gap_and_not_before(caller, meta):
    w = world()
    first = w.sessions.of_request(caller, CODE, "", meta)
    for _ in range(3):
        w.clock.now += GAP
        assert w.sessions.of_request(caller, CODE, "", meta) is first
    last = w.clock.now
    w.clock.now += GAP + 1
    second = w.sessions.of_request(caller, CODE, "", meta)
    assert second is not first
    assert (first.ended_at, second.ended_at) == (last, None)
    assert w.records.closed == [first.id]


def test_too_many_sessions_push_out_the_one_that_was_silent_for_longest():
    w = world(most_kept=2)
    held = w.sessions.of_connection(handled(HTTP), CODE, VERSION)
    anna, bert = (w.sessions.of_request(caller, CODE, "", b"") for caller in (ANNA, BERT))
    w.sessions.of_request(ANNA, CODE, "", b"")
    no_client = w.sessions.of_request(HTTP, CODE, "", b"")
    assert w.records.closed == [bert.id]
    assert [session.ended_at for session in (held, anna, no_client)] == [None, None, None]
    assert len(w.sessions) == 3


def test_a_thousand_abandoned_sessions_leave_nothing_behind():
    w = world(most_kept=100)
    for number in range(1000):
        w.sessions.of_request(ANNA, CODE, "", b'{"threadId":"%d"}' % number)
        assert len(w.sessions) <= 100
    w.clock.now += GAP + 1
    w.sessions.sweep()
    assert len(w.sessions) == 0
    assert len(w.records.closed) == len(w.records.opened) == 1000


def test_when_riglm_stops_every_session_ends_once():
    w = world()
    connected = w.sessions.of_connection(HTTP, CODE, VERSION)
    guessed = w.sessions.of_request(ANNA, CODE, "", b"")
    w.sessions.close()
    w.sessions.close()
    w.sessions.closed(connected)
    assert sorted(w.records.closed) == sorted([connected.id, guessed.id])
    assert len(w.sessions) == 0
    assert all(record.ended_at == w.clock.now for record in w.records.of(SessionClosed))


@pytest.mark.parametrize("caller", [ANNA, HTTP])
def test_a_client_with_a_connection_for_each_request_keeps_its_session(caller):
    sessions = world().sessions
    found = []
    for number in range(0, 12, 2):
        for starts in (True, False):
            each = replace(caller, connection=str(number + (not starts)))
            found.append(sessions.of_request(each, CODE, "2026-07-28", b"", starts=starts))
        found[-1].next_sequence_number()
    assert all(session is found[0] for session in found)
    sessions.discovered(replace(caller, connection="20"), CODE, b"")
    assert sessions.of_request(replace(caller, connection="21"), CODE, "2026-07-28", b"", starts=True) is not found[0]
