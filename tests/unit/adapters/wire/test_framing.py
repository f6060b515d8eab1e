import sys

import pytest

from riglm.adapters.mcp.wire.messages import ChunkBuffer, LineSplitter, well_formed
from riglm.domain.rawjson import EDGE


class Heard:
    """What a splitter said, in order: a line, or the size of one over the limit."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self.said: list[bytes | int] = []
        self.edges: list[tuple[bytes, bytes]] = []
        self.splitter = LineSplitter(self.said.append, self._overflowed, limit)

    def _overflowed(self, size: int, head: bytes, tail: bytes) -> None:
        self.said.append(size)
        self.edges.append((head, tail))

    def after(self, *chunks: bytes) -> list[bytes | int]:
        for chunk in chunks:
            self.splitter.feed(chunk)
        self.splitter.end()
        return self.said


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b'{"a":1}\n', [b'{"a":1}']),
        (b"a\nb\nc\n", [b"a", b"b", b"c"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\n\r\n  \t\n\na\n\n", [b"a"]),
        (b"a\nlast without newline", [b"a", b"last without newline"]),
        (b"last\r", [b"last"]),
        (b"", []),
        (b"\xff\xfe\x00\n\xc3\xa9\n", [b"\xff\xfe\x00", b"\xc3\xa9"]),
    ],
)
def test_lines_are_the_same_however_the_stream_is_cut(stream: bytes, lines: list[bytes]) -> None:
    assert Heard().after(stream) == lines
    assert Heard().after(*(stream[i : i + 1] for i in range(len(stream)))) == lines
    for at in range(len(stream)):
        assert Heard().after(stream[:at], stream[at:]) == lines


@pytest.mark.parametrize("size", [1, 7, 500, 3000, 100_000])
def test_the_ends_of_a_line_over_the_limit_are_kept_however_it_is_cut(size: int) -> None:
    first, second, last = (bytes([begin]) + b"x" * length + b"z" for begin, length in ((1, 3000), (2, 4000), (3, 2999)))
    stream = b"short\n" + first + b"\nshort again\n" + second + b"\n" + last
    heard = Heard(limit=1000)
    heard.after(*(stream[start : start + size] for start in range(0, len(stream), size)))
    assert heard.said == [b"short", len(first), b"short again", len(second), len(last)]
    assert heard.edges == [(line[:EDGE], line[-EDGE:]) for line in (first, second, last)]


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"12345678\n123456789\nok\n", [b"12345678", 9, b"ok"]),
        (b"1234567\r\n12345678\r\nok\n", [b"1234567", 9, b"ok"]),
        (b"          \nok\n", [10, b"ok"]),
        (b"ok\n" + b"x" * 100, [b"ok", 100]),
        (b"x" * 100 + b"\n\n" + b"y" * 50 + b"\n", [100, 50]),
    ],
)
def test_a_line_over_the_limit_is_reported_once_and_framing_goes_on(stream: bytes, said: list[bytes | int]) -> None:
    for at in range(len(stream) + 1):
        assert Heard(8).after(stream[:at], stream[at:]) == said
    assert Heard(8).after(*(stream[i : i + 1] for i in range(len(stream)))) == said


def test_an_endless_line_is_not_kept() -> None:
    heard = Heard(1000)
    for _ in range(10_000):
        heard.splitter.feed(b"x" * 100)
    assert heard.splitter._held.size == 0
    assert heard.said == []
    heard.splitter.feed(b"x\nnext\n")
    assert heard.said == [1_000_001, b"next"]


def test_a_long_line_in_many_pieces_comes_out_whole() -> None:
    line = bytes(range(32, 127)) * 50_000
    pieces = [line[i : i + 1_000] for i in range(0, len(line), 1_000)]
    assert Heard(len(line)).after(*pieces, b"\n") == [line]


def test_end_said_twice_is_heard_once() -> None:
    heard = Heard()
    heard.after(b"last")
    heard.splitter.end()
    assert heard.said == [b"last"]


def test_single_bytes_take_little_more_memory_than_their_number() -> None:
    gathering = ChunkBuffer()
    for _ in range(20_000):
        gathering.add(b"x")
    assert gathering.size == 20_000
    assert sys.getsizeof(gathering._gathered) < 25_000
    assert gathering.take(b"y") == b"x" * 20_000 + b"y"
    assert gathering.size == 0
    assert gathering.take(b"z") == b"z"


@pytest.mark.parametrize("line", [b"", b"plain", "é€😀".encode(), "\ufffd".encode(), b'"\\ud83d"'])
def test_valid_lines_are_passed_on_as_the_same_object(line: bytes) -> None:
    assert well_formed(line) is line


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        (b'{"a":"\xff"}', '{"a":"\ufffd"}'),
        (b"\xc3", "\ufffd"),
        (b"\xc3(", "\ufffd("),
        (b"\xe2\x82", "\ufffd"),
        (b"\xe2\x82x\xe2\x82\xac", "\ufffdx\u20ac"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\x80\xbf", "\ufffd\ufffd"),
        (b"caf\xe9 au lait", "caf\ufffd au lait"),
        (b"h\x00i\x00\xff\xfe", "h\x00i\x00\ufffd\ufffd"),
    ],
)
def test_each_invalid_sequence_becomes_one_replacement_character(line: bytes, repaired: str) -> None:
    assert well_formed(line) == repaired.encode()
