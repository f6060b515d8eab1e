import json

import pytest

from riglm.adapters.mcp.wire.framing import LineEnds
from riglm.domain.rawjson import EDGE

LONG = json.dumps({"jsonrpc": "2.0", "id": 1, "result": "x" * 3000}).encode()
OTHER = json.dumps({"jsonrpc": "2.0", "result": "y" * 4000, "id": 2}).encode()


@pytest.mark.parametrize("size", [1, 7, 500, 3000, 100_000])
def test_the_ends_of_a_line_are_kept_however_it_is_cut(size):
    stream = b"short\n" + LONG + b"\nshort again\n" + OTHER + b"\n" + LONG[:-1] + b" \n"
    edges, found = LineEnds(), []
    for start in range(0, len(stream), size):
        chunk = stream[start : start + size]
        for line in (LONG, OTHER):
            found += edges.of(len(line), chunk) if b"\n" in chunk else []
        edges.feed(chunk)
    expected = [(line[:EDGE], line[-EDGE:]) for line in (LONG, OTHER, LONG[:-1] + b" ")]
    assert sorted(found) == sorted(expected)


def test_a_line_that_the_end_of_the_input_ended_is_found_too():
    edges = LineEnds()
    edges.feed(LONG)
    assert edges.of(len(LONG), b"") == [(LONG[:EDGE], LONG[-EDGE:])]
    assert edges.of(len(LONG) + 1, b"") == []
