"""What processes keep of sessions: as it was, and nothing that only looks so."""

import msgspec
import pytest

from riglm.application.session_sharing import session_record
from riglm.application.session_sharing.session_record import merged, recorded
from riglm.domain.list_plan import ListPlan
from riglm.domain.prediction import Context
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_state import MAX_CALLS, MAX_USED, SessionState


@pytest.mark.parametrize("plain", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_record_at_all_is_ignored(plain):
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


# --- two processes that serve one session at once: what each of them did is there afterwards ---


def a_plan(*tools):
    return ListPlan(candidates=("a", "b", "c"), tools=frozenset(tools))


class Side:
    """A session as one process has it."""

    def __init__(self, record=None):
        opened = Session(
            started_at=1.0, era=ProtocolEra.MODERN, transport=Transport.HTTP, method=IdentificationMethod.CONNECTION
        )
        self.session = opened if record is None else record.session()
        self.state = SessionState()
        if record is not None:
            record.bring(self.session, self.state)

    def calls(self, *tools):
        for tool in tools:
            self.session.next_sequence_number()
            self.state.called(tool, self.state.last_at + 1.0)
        return self

    def says(self, text, *tools):
        self.state.context = Context(text=text)
        self.state.plan = a_plan(*tools)
        self.state.turn += 1
        return self

    @property
    def record(self):
        return recorded(self.session, self.state)


def after(base, one, other):
    """What is known when one is kept first, and the other is put on top of it."""
    there = Side(merged(base, other.record, one.record))
    return there.session, there.state


@pytest.fixture
def base():
    return Side().calls("a", "b").says("before", "a").record


def test_calls_of_both_stay_in_the_order_in_which_they_were_kept(base):
    one, other = Side(base).calls("one"), Side(base).calls("other", "other")
    session, state = after(base, one, other)
    assert state.calls == ["a", "b", "one", "other", "other"]
    assert state.made == 5
    assert session.sequence == 4, "numbers are given by a counter, and the greatest one counts"


def test_calls_stay_when_more_were_made_than_are_remembered(base):
    full = Side(base).calls(*["a"] * MAX_CALLS).record
    _, state = after(full, Side(full).calls("one"), Side(full).calls("a", "other"))
    assert state.calls[-4:] == ["a", "one", "a", "other"]
    assert len(state.calls) == MAX_CALLS
    assert state.made == 2 + MAX_CALLS + 3


@pytest.mark.parametrize("is_first", [True, False])
def test_a_context_is_not_undone_by_a_process_that_did_not_hear_of_it(base, is_first):
    sides = [Side(base).says("after", "c"), Side(base).calls("b")]
    _, state = after(base, *(sides if is_first else sides[::-1]))
    assert state.context.text == "after"
    assert state.plan == a_plan("c"), "its lists hold what was chosen for it"
    assert state.calls == ["a", "b", "b"]
    assert state.turn == 2


def test_of_two_contexts_the_one_that_is_kept_last_counts(base):
    _, state = after(base, Side(base).says("one", "b"), Side(base).says("other", "c"))
    assert (state.context.text, state.plan) == ("other", a_plan("c"))


def test_what_was_found_used_and_shown_is_joined(base):
    one, other = Side(base).calls("c"), Side(base).calls("a")
    one.state.searched, other.state.searched = {"x"}, {"y"}
    one.state.suggested, other.state.suggested = {"v"}, {"w"}
    one.state.sent, other.state.sent = {"v", "x"}, {"w", "x"}
    one.state.listed(("a", "c"))
    other.session.keys, one.session.keys = {"k": "1"}, {"l": "2"}
    session, state = after(base, one, other)
    assert list(state.used_in_turn) == ["b", "c", "a"]
    assert state.used_in_turn["a"] == 1
    assert (state.searched, state.suggested, state.sent) == ({"x", "y"}, {"v", "w"}, {"v", "w", "x"})
    assert state.shown == ("a", "c")
    assert session.keys == {"k": "1", "l": "2"}


def test_what_one_process_let_go_of_a_search_stays_so(base):
    found = Side(base)
    found.state.searched = {"x", "y"}
    known = found.record
    one, other = Side(known).calls("a"), Side(known)
    other.state.searched = {"y", "z"}
    assert after(known, one, other)[1].searched == {"y", "z"}


@pytest.mark.parametrize("is_first", [True, False])
def test_of_a_session_that_was_forgotten_nothing_comes_back(base, is_first):
    one, other = Side(base), Side(base).calls("c").says("mine", "c")
    one.session.forgotten_at = 5.0
    one.state = SessionState()
    _, state = after(base, *((one, other) if is_first else (other, one)))
    assert (state.calls, state.context, state.plan, state.used_in_turn) == ([], None, None, {})


def test_more_than_riglm_would_remember_is_cut_when_joined(base):
    progress = replace_progress(base, used_in_turn={str(number): 0 for number in range(MAX_USED)})
    one = Side(base).calls("new")
    used = merged(base, one.record, progress).progress.used_in_turn
    assert len(used) == MAX_USED
    assert "new" in used


def replace_progress(record, **changes):
    return msgspec.structs.replace(record, progress=msgspec.structs.replace(record.progress, **changes))


def test_a_project_that_another_process_learned_is_known_here(base):
    one, other = Side(base), Side(base)
    other.session.project = "where"
    other.record.bring(one.session, one.state)
    assert one.session.project == "where"
