"""Raw JSON: looked into and put together, all else as it came."""

import json
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from riglm.domain import rawjson

SURROGATES = st.integers(0xD800, 0xDFFF).map(lambda code: f"\\u{code:04x}")
TEXTS = st.lists(
    st.one_of(st.sampled_from([*string.printable, "é", "😀", "\\", '"']), st.characters(codec="utf-8")), max_size=8
).map(lambda parts: json.dumps("".join(parts), ensure_ascii=False))
TORN_TEXTS = st.lists(st.one_of(SURROGATES, st.sampled_from(["a", "\\n", "\\\\", "\\\\ud83d", "é"])), max_size=5).map(
    lambda parts: '"' + "".join(parts) + '"'
)
SPACE = st.sampled_from(["", "", " ", "\t ", "\n"])
SCALARS = st.one_of(TEXTS, TORN_TEXTS, st.sampled_from(["0", "-1.50", "1E400", "12345678901234567890", "true", "null"]))


def arrays(values):
    return st.tuples(SPACE, st.lists(values, max_size=3)).map(lambda drawn: f"[{drawn[0]}{','.join(drawn[1])}]")


def objects(values):
    return st.tuples(SPACE, st.dictionaries(TEXTS, values, max_size=4)).map(
        lambda drawn: "{" + drawn[0] + f"{drawn[0]},".join(f"{k}{drawn[0]}: {v}" for k, v in drawn[1].items()) + "}"
    )


VALUES = st.recursive(SCALARS, lambda values: st.one_of(arrays(values), objects(values)), max_leaves=8)
DOCUMENTS = objects(VALUES)


def spelt(document):
    """The members of a document, each value in its own spelling."""
    decoder, found, place = json.JSONDecoder(), {}, document.index("{") + 1
    while True:
        while document[place] in " \t\n,":
            place += 1
        if document[place] == "}":
            return found
        key, place = decoder.raw_decode(document, place)
        while document[place] in " \t\n:":
            place += 1
        _, end = decoder.raw_decode(document, place)
        found[key] = document[place:end].encode()
        place = end


def plain_members(raw):
    return {key: bytes(value) for key, value in rawjson.members(raw).items()}


@given(DOCUMENTS)
@example('{"a":"\\ud83d","b":[1 , {"c":2}]}')
@example('{"a":"\\udc00\\ud83d","b" : {"\\ud83d":"}"} }')
def test_members_are_found_in_their_own_spelling(document):
    assert plain_members(document.encode()) == spelt(document)


@given(DOCUMENTS, TEXTS)
@example('{"k":"\\ud83d","a":2}', '"n"')
def test_setting_a_member_leaves_all_others_as_they_were(document, key):
    name = json.loads(key)
    before = spelt(document)
    after = rawjson.with_member(document.encode(), (name,), b"[ 7 ]")
    assert plain_members(after) == {**before, name: b"[ 7 ]"}
    assert list(rawjson.members(after)) == list({**before, name: b""})


@given(DOCUMENTS)
def test_a_member_deep_inside_is_set_and_its_neighbours_kept(document):
    outer = b'{"one":%b,"other": 1.0}' % document.encode()
    changed = plain_members(rawjson.with_member(outer, ("one", "deep", "deeper"), b"1"))
    inner = {**spelt(document)}
    deep = inner.pop("deep", b"{}")
    assert changed["other"] == b"1.0"
    assert plain_members(changed["one"]) == {**inner, "deep": rawjson.with_member(deep, ("deeper",), b"1")}


@given(st.binary())
@example(b'{"\xff":1}')
@example(b'"\xff"')
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'{"a":"\\ud83d",')
@example(b'"\\ud83d')
@example(b"")
def test_no_bytes_make_looking_inside_fail(raw):
    rawjson.members(raw)
    rawjson.elements(raw)
    rawjson.plain(raw)
    rawjson.text(raw)


@pytest.mark.parametrize("raw", [b"", b"[1]", b"1", b"null", b'"a"', b"{", b'{"a":1}x'])
def test_what_is_no_object_has_no_members(raw):
    assert rawjson.members(raw) == {}


@pytest.mark.parametrize("raw", [b"", b"{}", b"1", b"[", b"[1]x"])
def test_what_is_no_array_has_no_elements(raw):
    assert rawjson.elements(raw) == []


@given(SPACE, st.lists(VALUES, max_size=4))
@example(" ", ["1.0", '{"a" : "\\ud83d"}', '"x"'])
@example("", ['"\\ud83d,]"', "[[],{}]"])
def test_elements_keep_their_spelling(space, values):
    raw = f"[{space}{f'{space},{space}'.join(values)}{space}]".encode()
    assert [bytes(each) for each in rawjson.elements(raw)] == [value.encode() for value in values]


def test_an_empty_object_within_a_torn_one_is_found():
    assert plain_members(b'{"a":"\\ud83d","b":{},"c":[ ]}') == {"a": b'"\\ud83d"', "b": b"{}", "c": b"[ ]"}
    assert rawjson.strict_members(b"{}") == {}


def test_with_member_makes_what_is_missing_on_the_way():
    assert rawjson.with_member(b"", ("_meta", "x"), b"1") == b'{"_meta":{"x":1}}'


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'"a\\ud83db"', "a\ufffdb"),
        (b'"\\udc00"', "\ufffd"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\ud83d\\ud83d\\ude00"', "\ufffd😀"),
        (b'"\\\\ud83d"', "\\ud83d"),
        (b'"\\\\ud83d\\udc00"', "\\ud83d\ufffd"),
        (b'"\\\\ud83d\\ud83d"', "\\ud83d\ufffd"),
        (b'"\\\\\\ud83d"', "\\\ufffd"),
        (b"1", None),
        (b"", None),
        (None, None),
    ],
)
def test_text_shows_a_mark_for_each_lone_surrogate(raw, value):
    assert rawjson.text(raw) == value


@pytest.mark.parametrize("size", [1 << 20, 12, 13])
@given(raw=TORN_TEXTS)
def test_only_lone_surrogates_are_replaced(size, raw):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rawjson, "SLICE", size)
        fixed = rawjson.repaired(raw.encode())
    assert len(fixed) == len(raw.encode())
    assert json.loads(fixed) == re.sub("[\ud800-\udfff]", "\ufffd", json.loads(raw))


@given(st.text())
def test_joined_objects_are_read_back(key):
    assert plain_members(rawjson.join_object({key: b"1.50", "z" * (len(key) + 1): b" [ ] ".strip()})) == {
        key: b"1.50",
        "z" * (len(key) + 1): b"[ ]",
    }
