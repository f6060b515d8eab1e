"""Digests of definitions, and tools that resemble pinned ones."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.jsonrpc import Raw
from riglm.domain.tool_pin import KnownTexts, ToolPin, definition_digest

TOOL = {"name": "read", "description": "Reads a file.", "inputSchema": {"type": "object"}}


def raw(**members: Any) -> Raw:
    return Raw(json.dumps({**TOOL, **members}).encode())


def a_pin(server: str, name: str, words: Sequence[str]) -> ToolPin:
    seen = json.dumps({"name": name, "description": " ".join(words)}).encode()
    return ToolPin(
        server=server, name=name, digest="x", definition=seen, seen_digest="x", seen=seen, pinned_at=0.0, seen_at=0.0
    )


@pytest.mark.parametrize("member", ["Description", "NAME", "inputschema", "Annotations"])
def test_a_member_in_another_case_counts_as_a_change(member: str) -> None:
    assert definition_digest(raw(**{member: "x"})) != definition_digest(raw())


def test_members_that_clients_do_not_show_do_not_count() -> None:
    assert definition_digest(raw(_meta={"build": 7}, icons=[], vendor=1)) == definition_digest(raw())


def test_a_tool_resembles_the_one_with_most_words_in_common() -> None:
    rng = random.Random(7)
    words = [f"w{number}" for number in range(200)]
    texts = [rng.sample(words, rng.randint(6, 14)) for _ in range(300)]
    known = KnownTexts(a_pin("one", f"tool{number}", text) for number, text in enumerate(texts))
    resembling = 0
    for _ in range(500):
        text = list(rng.choice(texts))
        for _ in range(rng.randint(0, 3)):
            text[rng.randrange(len(text))] = rng.choice(words)
        given = set(text)
        overlaps = [len(given & set(each)) / len(given | set(each)) for each in texts]
        best = max(overlaps)
        expected = f"one/tool{overlaps.index(best)}" if best >= 0.8 else ""
        assert known.resembled("two", "new", Raw(a_pin("two", "new", text).seen)) == expected
        resembling += best >= 0.8
    assert 100 < resembling < 500


def test_the_order_of_repeated_members_counts_at_any_depth():
    told = '{"name":"read","inputSchema":{"properties":{"path":{"description":%s,"description":%s}}}}'
    one, other = (Raw((told % words).encode()) for words in (('"a"', '"b"'), ('"b"', '"a"')))
    assert definition_digest(one) != definition_digest(other)
    assert definition_digest(one) == definition_digest(Raw(bytes(one).replace(b":{", b": {")))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*TOOL, "title", "annotations", "_meta"]), VALUES))
def test_blanks_and_escapes_and_order_do_not_count(members: dict[str, Any]) -> None:
    spellings = [
        json.dumps(members, separators=(",", ":"), ensure_ascii=False),
        json.dumps(members, separators=(" ,", "\t: ")),
        json.dumps(dict(reversed(members.items())), separators=(",", ":")),
    ]
    if "NaN" not in spellings[1] and "Infinity" not in spellings[1]:
        assert len({definition_digest(Raw(each.encode())) for each in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a" :1,"a":2}', '{"a":2}'),
        ('{"a":1,"a":2,"b":"\\u0022:"}', '{"a":2,"b":"\\":"}'),
        ('{"a":1,"\\u0061":2,"b":"\\u003a"}', '{"a":2,"b":":"}'),
        ('{"a":{"b":1,"b":1}}', '{"a":{"b":1}}'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":1e999}', '{"a":null}'),
        ('"\\ud800"', '"\\ud801"'),
    ],
)
def test_what_parsers_may_read_differently_counts(one: str, other: str) -> None:
    tools = [b'{"name":"read","inputSchema":%b}' % each.encode() for each in (one, other)]
    assert len({definition_digest(Raw(each)) for each in tools}) == 2
