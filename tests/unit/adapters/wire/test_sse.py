import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.adapters.mcp.wire.event_stream import Event, EventParser, EventTooLargeError, encode_event

EURO = "€".encode()


def message(data: bytes, event_id: bytes | None = None, retry_ms: int | None = None) -> Event:
    return Event("message", data, event_id, retry_ms)


def parse(*chunks: bytes, limit: int = 1 << 20) -> list[Event]:
    events: list[Event] = []
    parser = EventParser(events.append, limit)
    for chunk in chunks:
        parser.feed(chunk)
    return events


def pieces(stream: bytes) -> list[list[bytes]]:
    """The stream whole, byte by byte (with empty chunks between), and cut once at every place."""
    single = [part for i in range(len(stream)) for part in (stream[i : i + 1], b"")]
    return [[stream], single, *([stream[:at], stream[at:]] for at in range(1, len(stream)))]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"event: message\r\ndata: {}\r\n\r\n", [message(b"{}")]),
        (b"event: message\ndata: {}\n\n", [message(b"{}")]),
        (b"data: {}\n\n", [message(b"{}")]),
        (b"event: message\r\ndata: \r\n\r\n", [message(b"")]),
        (b"data: \n\n", [message(b"")]),
        (b"event: message\ndata: a\n\ndata: b\n\n", [message(b"a"), message(b"b")]),
        (b"event: message\r\ndata: a\r\ndata: b\r\n\r\n", [message(b"a\nb")]),
        (b"event: message\r\ndata: a\rdata: b\r\n\r\n", [message(b"a\nb")]),
        (b"data: a\r\rdata: b\r\r", [message(b"a"), message(b"b")]),
        (b"data: a\r\n\ndata: b\n\r\n", [message(b"a"), message(b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [message(b"a")]),
        (b"\xef\xbbdata: a\n\ndata: b\n\n", [message(b"b")]),
        (b": keep alive\n\n:\n\ndata:x\n\n", [message(b"x")]),
        (b"data:  two spaces\n\n", [message(b" two spaces")]),
        (b"data:\n\n", [message(b"")]),
        (b"data\n\n", [message(b"")]),
        (b"data\ndata\n\n", [message(b"\n")]),
        (b"data: a\ndata:\ndata: b\n\n", [message(b"a\n\nb")]),
        (b"event: ping\n\n", []),
        (b"event: ping\n\ndata: a\n\n", [message(b"a")]),
        (b"event: endpoint\ndata: /x\n\n", [Event("endpoint", b"/x", None, None)]),
        (b"event: a\nevent:\ndata: x\n\n", [message(b"x")]),
        (b"event: " + EURO + b"\ndata: " + EURO + b"\n\n", [Event("€", EURO, None, None)]),
        (b"event: \xff\ndata: \xff\n\n", [Event("\ufffd", b"\xff", None, None)]),
        (b"id: 7\ndata:\n\n", [message(b"", b"7")]),
        (b"id: 7\n\n", [message(b"", b"7")]),
        (b"id\ndata: x\n\n", [message(b"x", b"")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [message(b"a", b"1"), message(b"b")]),
        (b"id: a\0b\ndata: x\n\n", [message(b"x")]),
        (b"id: 1\nid: a\0b\ndata: x\n\n", [message(b"x", b"1")]),
        (b"retry: 1500\n\n", [message(b"", None, 1500)]),
        (b"retry: 5\nid: 1\ndata: \n\n", [message(b"", b"1", 5)]),
        (b"retry: -1\n\nretry: 1.5\n\nretry:\n\nretry: \xd9\xa3\n\n", []),
        (b"retry: " + b"9" * 5000 + b"\ndata: x\n\n", [message(b"x")]),
        (b"DATA: x\nfoo: bar\nfoo\ndata: y\n\n", [message(b"y")]),
        (b" data: x\n\n", []),
        (b"data: never ended\n", []),
        (b"data: never ended", []),
        (b"\n\n\r\r\n\n", []),
        (b"", []),
    ],
)
def test_events_are_the_same_however_the_stream_is_cut(stream: bytes, events: list[Event]) -> None:
    for chunks in pieces(stream)[: 300 if len(stream) > 300 else None]:
        assert parse(*chunks) == events


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.none() | st.binary(max_size=5).filter(lambda b: not set(b) & {0, 10, 13}),
            st.none() | st.integers(0, 10**15 - 1),
        ),
        max_size=5,
    ),
    st.integers(1, 50),
)
def test_an_encoded_event_is_parsed_as_it_was_but_for_line_endings(
    said: list[tuple[bytes, bytes | None, int | None]], step: int
) -> None:
    stream = b"".join(encode_event(data, id=event_id, retry_ms=retry_ms) for data, event_id, retry_ms in said)
    assert parse(*(stream[i : i + step] for i in range(0, len(stream), step))) == [
        message(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), event_id, retry_ms)
        for data, event_id, retry_ms in said
    ]


def test_an_event_takes_one_data_line_for_each_line_of_its_data() -> None:
    assert encode_event(b"a\nb\r\nc\rd", id=b"1", retry_ms=2) == (
        b"event: message\nid: 1\nretry: 2\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
    )


@pytest.mark.parametrize("event_id", [b"a\nb", b"a\rb", b"a\0b"])
def test_an_id_that_would_break_the_stream_is_refused(event_id: bytes) -> None:
    with pytest.raises(ValueError, match="id cannot hold"):
        encode_event(b"x", id=event_id)


def test_a_negative_retry_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        encode_event(b"x", retry_ms=-1)


@pytest.mark.parametrize(
    "stream",
    [b"data: 12345", b"data: 12345\n\n", b"data: 1\ndata: 2\n", b":2345678901", b":2345678901\n", b"data: 1\nfoobar\n"],
)
def test_an_event_over_the_limit_is_an_error_that_names_it(stream: bytes) -> None:
    for chunks in pieces(stream):
        with pytest.raises(EventTooLargeError, match="limit of 10 bytes"):
            parse(*chunks, limit=10)


def test_an_event_of_just_the_limit_passes() -> None:
    stream = b"data: 1234\n\n:234567890\n:234567890\ndata: 1234\n\nid: 1\ndata\n\n"
    for chunks in pieces(stream):
        assert len(parse(*chunks, limit=10)) == 3


def test_a_stream_of_comments_never_reaches_the_limit() -> None:
    assert parse(*[b": ping\n"] * 1000, b"data: x\n\n", limit=10) == [message(b"x")]


def test_a_large_event_in_many_pieces_comes_out_whole() -> None:
    data = b'"' + b"x" * 5_000_000 + b'"'
    stream = b"event: message\r\ndata: " + data + b"\r\n\r\n"
    chunks = [stream[i : i + 1_000] for i in range(0, len(stream), 1_000)]
    assert parse(*chunks, limit=len(stream)) == [message(data)]
