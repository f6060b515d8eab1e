"""Tracking: what happens becomes records, and no failure of it reaches a call."""

import pytest

from riglm.application.tool_lists.selection import ListSelection
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain.exposure import Exposure
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod, ErrorKind, ToolInvocation
from tests.contracts.analytics_contract import a_session

HASHER = KeyedHasher(bytes(32))


class Sink:
    """Takes what is put, as the recorder does."""

    def __init__(self):
        self.items = []
        self.sizes = []

    def put(self, item, size):
        self.items.append(item)
        self.sizes.append(size)

    def records(self):
        return [item() if callable(item) else item for item in self.items]


class Brim:
    """Breaks whenever something is put."""

    error = RuntimeError("broken")

    def put(self, item, size):
        raise self.error


def tracking(sink, arguments="hash"):
    return TrackingService(sink.put, HASHER, arguments, clock=lambda: 77.0)


class Meter:
    """Notes of calls in which mode they were, and how their tool was found."""

    def __init__(self):
        self.calls = []

    def exposed(self, exposure, *, changed):
        """Lists are not noted."""

    def called(self, session_id, tool, upstream, found, error_kind, seconds, mode="off", is_hit=None):
        self.calls.append((mode, is_hit))


def call(service, session, **known):
    service.called(
        session,
        **{
            "tool": "read",
            "upstream": "github",
            "arguments": b'{"b": 1, "a": 2}',
            "sequence_number": session.next_sequence_number(),
            "started": 5.0,
            "duration_ms": 1.5,
            "error_kind": None,
            "error_code": None,
            "found": DiscoveryMethod.LISTED,
            **known,
        },
    )


@pytest.fixture
def sink():
    return Sink()


def test_an_invocation_is_recorded_with_all_that_is_known_of_it(sink):
    session = a_session()
    call(tracking(sink), session, error_kind=ErrorKind.PROTOCOL, error_code=-32000)
    [record] = sink.records()
    assert record == ToolInvocation(
        id=record.id,
        session_id=session.id,
        tool="read",
        upstream="github",
        timestamp=5.0,
        duration_ms=1.5,
        success=False,
        sequence_number=1,
        arguments_hash=HASHER.arguments(b'{"a":2,"b":1}'),
        error_kind=ErrorKind.PROTOCOL,
        error_code=-32000,
        found=DiscoveryMethod.LISTED,
    )
    assert record.id.version == 7


def test_with_none_not_even_a_hash_is_kept_and_the_arguments_do_not_wait_in_the_queue(sink):
    call(tracking(sink, "none"), a_session(), arguments=b'{"a": 1}')
    assert b'{"a": 1}' not in sink.items[0].args
    assert (sink.records()[0].arguments, sink.records()[0].arguments_hash) == (None, "")


def test_a_list_is_recorded_with_its_session_once_until_it_changes(sink):
    service = tracking(sink)
    session = a_session()
    for _ in range(3):
        service.exposed(session, ListSelection(("b", "a")))
    [changed, exposure] = sink.records()
    assert changed.tools_available == ("b", "a")
    assert (exposure.session_id, exposure.timestamp, exposure.shown) == (session.id, 77.0, ("b", "a"))
    service.exposed(session, ListSelection(("b", "a"), reason="again, for another reason"))
    service.exposed(session, ListSelection(("a",)))
    assert [type(each).__name__ for each in sink.records()[2:]] == ["Exposure", "Session", "Exposure"]


def test_no_failure_reaches_the_caller_and_each_kind_is_logged_once(caplog):
    service = tracking(Brim())
    session = a_session()
    for _ in range(2):
        service.session_opened(session)
        service.session_changed(session)
        service.exposed(session, ListSelection(("a",)))
        call(service, session)
        service.session_closed(session, 1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "usage could not be recorded; the call goes through, and this is logged once"
    ]
    assert caplog.records[0].exc_info[1] is Brim.error


def test_answers_that_show_tools_are_all_recorded_and_are_not_the_session_s_list(sink):
    service, session = tracking(sink), a_session()
    service.exposed(session, ListSelection(("a", "b")))
    for _ in range(2):
        service.exposed(session, ListSelection(("c",), surface="search", mode="enforce", tokens_shown=7))
    service.exposed(session, ListSelection(("a", "b")))
    found = [item for item in sink.items if isinstance(item, Exposure)]
    assert [(one.shown, one.surface, one.tokens_shown) for one in found] == [
        (("a", "b"), "", 0),
        (("c",), "search", 7),
        (("c",), "search", 7),
    ]
    assert session.tools_available == ("a", "b")


def test_whoever_wants_to_know_is_told_of_the_end_of_a_session_even_if_it_cannot_be_recorded(caplog):
    ended = []
    for number, sink in enumerate((Sink(), Brim())):
        service, session = tracking(sink), a_session()
        service.on_closed(ended.append)
        service.session_closed(session, 1.0)
        assert ended[number] is session


@pytest.mark.parametrize(("choice", "kept"), [("none", (None, False)), ("raw", ("{}", True)), ("hash", (None, True))])
def test_what_is_stored_of_arguments_can_change_between_calls(sink, choice, kept):
    service, session = tracking(sink), a_session()
    service.take_arguments(choice)
    service.called(session, tool="a", upstream="u", arguments=b"{}", sequence_number=1, started=1.0, duration_ms=1.0)
    [record] = sink.records()
    assert (record.arguments, bool(record.arguments_hash)) == kept


def test_a_call_is_metered_by_the_list_that_its_session_had_when_it_began(sink):
    meter, session = Meter(), a_session()
    service = TrackingService(sink.put, HASHER, "hash", meter=meter, clock=lambda: 77.0)
    before_any = service.list_of(session)
    service.exposed(session, ListSelection(("write",), ("read",), mode="shadow", surface="dynamic"))
    without = service.list_of(session)
    service.exposed(session, ListSelection(("read",), ("write",), mode="shadow", surface="dynamic"))
    now = service.list_of(session)
    service.exposed(session, ListSelection(("write",), ("read",), mode="enforce", surface="dynamic"))
    for with_list in (before_any, without, now, service.list_of(session)):
        call(service, session, tool="read", with_list=with_list)
    assert meter.calls == [("off", None), ("shadow", False), ("shadow", True), ("enforce", True)]
