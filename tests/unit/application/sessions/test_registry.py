"""The ladder by which sessions are recognised, and how long they live."""

from dataclasses import replace

import pytest

from riglm.application.sessions.registry import IdentificationSettings
from riglm.domain.session import ClientInfo, IdentificationConfidence, IdentificationMethod, Session, Transport
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


@pytest.mark.parametrize("meta", [b'{"openai\\/session":"s","threadId":"t"}', b'{"threadId":"t","openai/session":"s"}'])
def test_conversation_keys_are_tried_in_the_order_configured_and_all_are_remembered(meta):
    w = world()
    session = w.sessions.of_request(ANNA, CODE, "", meta)
    hashed = w.hasher.session_key
    assert session.keys == {"threadId": hashed("t"), "openai/session": hashed("s")}
    assert w.sessions.of_request(ANNA, CODE, "", b'{"threadId":"t"}') is session
    assert w.sessions.of_request(ANNA, CODE, "", b'{"openai/session":"s"}') is not session


@pytest.mark.parametrize("meta", [b'{"threadId":7}', b'{"threadId":""}', b'{"x":"threadId"}', b"[]", b"{"])
def test_a_conversation_key_that_says_nothing_is_no_evidence(meta):
    assert world().sessions.of_request(ANNA, CODE, "", meta).method is IdentificationMethod.PRINCIPAL


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


def test_two_connections_without_better_evidence_are_two_sessions():
    sessions = world().sessions
    assert sessions.of_connection(ANNA, CODE, VERSION) is not sessions.of_connection(ANNA, CODE, VERSION)


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


def test_a_handle_stays_the_best_evidence():
    sessions = world().sessions
    caller = handled(HTTP)
    base = sessions.of_connection(caller, CODE, VERSION)
    assert sessions.of_call(base, caller, ONE) is base
    assert base.method is IdentificationMethod.HANDLE
    assert "threadId" in base.keys


def test_two_connections_of_one_conversation_share_its_session():
    sessions = world().sessions
    first, second = (sessions.of_connection(HTTP, CODE, VERSION) for _ in range(2))
    assert sessions.of_call(first, HTTP, ONE) is first
    assert sessions.of_call(second, HTTP, ONE) is first
    assert second.method is IdentificationMethod.CONNECTION


# --- how long a session lives ---


@pytest.mark.parametrize("caller", [STDIO, HTTP])
def test_a_connection_s_session_lives_as_long_as_the_connection(caller):
    w = world()
    session = w.sessions.of_connection(caller, CODE, VERSION)
    w.clock.now += 10 * GAP
    w.sessions.sweep()
    assert session.ended_at is None
    w.sessions.closed(session)
    assert session.ended_at == w.clock.now
    w.sessions.closed(session)
    assert w.records.closed == [session.id]
    assert len(w.sessions) == 0


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


def test_a_call_keeps_the_session_of_its_conversation_alive():
    w = world()
    base = w.sessions.of_connection(HTTP, CODE, VERSION)
    w.sessions.of_call(base, HTTP, ONE)
    other = w.sessions.of_call(base, HTTP, TWO)
    for _ in range(3):
        w.clock.now += GAP
        w.sessions.sweep()
        assert w.sessions.of_call(base, HTTP, TWO) is other
    w.clock.now += GAP + 1
    assert w.sessions.of_call(base, HTTP, TWO) is not other
    assert other.ended_at is not None
    assert base.ended_at is None


def test_the_session_of_a_process_lives_as_long_as_the_process():
    w = world()
    session = w.sessions.of_request(STDIO, CODE, "", b"")
    w.clock.now += 10 * GAP
    w.sessions.sweep()
    assert w.sessions.of_request(STDIO, CODE, "", b"") is session
    w.sessions.close()
    assert w.records.closed == [session.id]


def test_too_many_sessions_push_out_the_one_that_was_silent_for_longest():
    w = world(most_kept=2)
    held = w.sessions.of_connection(handled(HTTP), CODE, VERSION)
    anna, bert = (w.sessions.of_request(caller, CODE, "", b"") for caller in (ANNA, BERT))
    w.sessions.of_request(ANNA, CODE, "", b"")
    no_client = w.sessions.of_request(HTTP, CODE, "", b"")
    assert w.records.closed == [bert.id]
    assert [session.ended_at for session in (held, anna, no_client)] == [None, None, None]
    assert len(w.sessions) == 3


def test_ten_thousand_abandoned_sessions_leave_nothing_behind():
    w = world(most_kept=100)
    for number in range(10_000):
        w.sessions.of_request(ANNA, CODE, "", b'{"threadId":"%d"}' % number)
        assert len(w.sessions) <= 100
    w.clock.now += GAP + 1
    w.sessions.sweep()
    assert len(w.sessions) == 0
    assert len(w.records.closed) == len(w.records.opened) == 10_000


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


def test_a_session_does_not_end_before_its_start_when_the_clock_is_set_back():
    w = world()
    session = w.sessions.of_connection(HTTP, CODE, VERSION)
    w.clock.now -= 86_400.0
    w.sessions.close()
    assert [record.ended_at for record in w.records.of(SessionClosed)] == [session.started_at]


def test_a_call_after_the_end_opens_nothing_for_its_connection():
    w = world()
    base = w.sessions.of_connection(HTTP, CODE, VERSION)
    w.sessions.closed(base)
    assert w.sessions.of_call(base, HTTP, ONE) is base
    assert len(w.sessions) == 0


def test_what_becomes_known_of_a_session_is_recorded():
    w = world()
    base = w.sessions.of_connection(HTTP, CODE, VERSION)
    w.sessions.of_call(base, HTTP, ONE)
    methods = [record.method for record in w.records.of(Session)]
    assert methods == [IdentificationMethod.CONNECTION, IdentificationMethod.META_KEY]


def test_other_evidence_counts_from_the_next_call_on_and_known_sessions_stay():
    here = world()
    known = here.sessions.of_request(HTTP, CODE, VERSION, ONE)
    here.sessions.look_for(IdentificationSettings(meta_keys=("new", "threadId"), idle_gap=10.0))
    assert here.sessions.of_request(HTTP, CODE, VERSION, ONE) is known
    assert here.sessions.of_request(HTTP, CODE, VERSION, b'{"threadId":"one","new":"2"}') is not known
    here.clock.now += 11.0
    here.sessions.sweep()
    assert len(here.sessions) == 0


@pytest.mark.parametrize("caller", [HTTP, ANNA, handled(ANNA)])
@pytest.mark.parametrize("meta", [b"", ONE])
def test_callers_in_different_profiles_share_no_session(caller, meta):
    stage = world(profile="work")
    found = [
        stage.sessions.of_request(replace(caller, profile=profile), CODE, VERSION, meta)
        for profile in ("review", "deploy", "", "review")
    ]
    assert [each.profile for each in found] == ["review", "deploy", "work", "review"]
    assert found[0] is found[3]
    assert len({each.id for each in found}) == 3


def test_a_session_is_recorded_with_the_profile_that_it_began_with():
    stage = world(profile="work")
    first = stage.sessions.of_connection(HTTP, CODE, VERSION)
    stage.sessions.look_for(IdentificationSettings(profile="home"))
    second = stage.sessions.of_connection(HTTP, CODE, VERSION)
    assert [each.metadata for each in (first, second)] == [{"profile": "work"}, {"profile": "home"}]


@pytest.mark.parametrize(
    ("caller", "root", "has_project"), [(STDIO, "/home/ann/shop", True), (STDIO, "", False), (HTTP, "/srv", False)]
)
def test_a_session_over_stdio_is_recorded_with_the_hash_of_the_project_that_riglm_was_started_in(
    caller, root, has_project
):
    stage = world(find_project=lambda place: root if place == "." else "")
    handshake = stage.sessions.of_connection(caller, CODE, VERSION)
    modern = stage.sessions.of_request(caller, CODE, "2026-07-28", b"")
    project = stage.hasher.project(root) if has_project else ""
    assert [each.project for each in (handshake, modern, *stage.records.of(Session))] == [project] * 4
    assert not root or root not in str(stage.records.all)


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
