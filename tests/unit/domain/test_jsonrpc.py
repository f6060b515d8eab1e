"""Messages: their envelope is read, their payload stays as it came."""

import contextlib
import json
import sys
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from riglm.domain import jsonrpc, rawjson
from riglm.domain.jsonrpc import INVALID_REQUEST, PARSE_ERROR, MalformedMessageError
from tests.unit.domain.test_rawjson import DOCUMENTS, TEXTS, TORN_TEXTS, VALUES, plain_members, spelt

NUMBERS = st.one_of(
    st.integers().map(str), st.floats(allow_nan=False, allow_infinity=False).map(json.dumps), st.just("1E2")
)
IDS = st.one_of(NUMBERS, TEXTS, TORN_TEXTS)
READ = {"id", "method", "params", "jsonrpc", "result", "error"}


@given(IDS, TEXTS, DOCUMENTS)
@example('"\\ud83d"', '"ping"', "{}")
@example("1", '"\\ud83d"', '{"k":"\\ud83d"}')
def test_requests_are_read_and_stay_as_they_came(message_id, method, params):
    line = f'{{"params":{params},"id":{message_id},"jsonrpc":"2.0","vendor":[1.0],"method":{method}}}'.encode()
    message = jsonrpc.decode(line)
    assert message.is_request
    assert message.id == message_id.encode()
    assert message.method == jsonrpc.text(method.encode())
    if "\n" not in params:
        assert message.line is line
        assert bytes(message.params) == params.encode()


@given(IDS, VALUES)
def test_results_are_read_and_stay_as_they_came(message_id, value):
    line = f'{{"jsonrpc":"2.0","id":{message_id},"result":{value}}}'.encode()
    message = jsonrpc.decode(line)
    assert message.is_response
    assert not message.is_request
    assert (message.id, bytes(message.result)) == (message_id.encode(), value.encode().replace(b"\n", b" "))


@given(DOCUMENTS, st.sampled_from(["id", "params"]))
def test_replacing_one_member_leaves_all_others_as_they_were(document, name):
    extra = {key: value for key, value in spelt(document).items() if key not in READ}
    line = jsonrpc.join_object({"id": b"1", "method": b'"m"', "params": document.encode(), **extra})
    line = line.replace(b"\n", b" ")
    replaced = jsonrpc.decode(line).replace(**{name: b"[ ]" if name == "params" else b'"9"'})
    changed = b"[ ]" if name == "params" else b'"9"'
    assert plain_members(replaced.line) == {**plain_members(line), name: changed}
    assert list(plain_members(replaced.line)) == list(plain_members(line))


@given(st.binary())
@example(b'{"id":1,"method":"\xff"}')
@example(b'{"id":1,"\xff":2,"method":"a"}')
@example(b'{"id":1,"method":"a","params":' + b"[" * 100_000)
@example(b'{"id":1,"id":2,"method":"\\u00e9","x":' + b"[" * 500 + b"]" * 500 + b"}")
@example(b'{"id":1,"method":"\\ud83d')
@example(b'{"method":"\\u0000","x":' + b"9" * 5000 + b"}")
def test_arbitrary_bytes_raise_nothing_but_malformed(line):
    with contextlib.suppress(MalformedMessageError):
        assert jsonrpc.decode(line).line.split() == line.split()


@pytest.mark.parametrize(
    ("line", "code", "message_id"),
    [
        (b"", PARSE_ERROR, None),
        (b"{", PARSE_ERROR, None),
        (b"\xef\xbb\xbf{}", PARSE_ERROR, None),
        (b'{"id":1,"method":"a","params":{"k":"a\nb"}}', PARSE_ERROR, None),
        (b'{"id":1,"method":"a"}{"id":2,"method":"b"}', PARSE_ERROR, None),
        (b'{"id":1,"method":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", PARSE_ERROR, b"1"),
        (b"[]", INVALID_REQUEST, None),
        (b' [{"id":1,"method":"a"}]', INVALID_REQUEST, None),
        (b'"a"', INVALID_REQUEST, None),
        (b"{}", INVALID_REQUEST, None),
        (b'{"id":1}', INVALID_REQUEST, b"1"),
        (b'{"id":null,"method":"a"}', INVALID_REQUEST, None),
        (b'{"id":true,"method":"a"}', INVALID_REQUEST, None),
        (b'{"id":{},"method":"a"}', INVALID_REQUEST, None),
        (b'{"id":[1],"result":1}', INVALID_REQUEST, None),
        (b'{"id":7,"method":7}', INVALID_REQUEST, b"7"),
        (b'{"id":{},"method":7}', INVALID_REQUEST, None),
        (b'{"method":7}', INVALID_REQUEST, None),
        (b'{"result":{}}', INVALID_REQUEST, None),
        (b'{"error":{"code":401,"message":"no JSON-RPC"}}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","error":"invalid_token"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","error":null}', INVALID_REQUEST, None),
        (b'{"id":7,"method":"a","params":3}', INVALID_REQUEST, b"7"),
        (b'{"id":7,"method":"a","params":"x"}', INVALID_REQUEST, b"7"),
    ],
)
def test_what_is_no_message_is_refused_with_its_code_and_id(line, code, message_id):
    with pytest.raises(MalformedMessageError) as caught:
        jsonrpc.decode(line)
    assert (caught.value.code, caught.value.id) == (code, message_id)


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"id":2,"method":"a"}',
        b'{"id":1,"method":"tools/list","method":"tools/call"}',
        b'{"id":1,"method":"tools/list","m\\u0065thod":"tools/call"}',
        b'{"id":1,"method":"a","params":{},"params":{"name":"x"}}',
        b'{"id":1,"method":"a","params":{"name":"safe","name":"denied"}}',
        b'{"id":1,"method":"a","params":{"name":"safe","\\u006eame":"denied"}}',
        b'{"id":1,"method":"a","params":{"\\u006Eam\\u0065":"safe","name":"denied","x":"\\ud800"}}',
        b'{"id":1,"method":"a","params":{"arguments":{"a":1},"arguments":{"a":2}}}',
        b'{"id":1,"method":"a","params":{"uri":"a","x":[{"id":1}], "uri":"b"}}',
        b'{"method":"a","params":{"_meta":{},"_meta":{}}}',
    ],
)
@pytest.mark.parametrize("size", [1 << 20, 7, 8])
def test_a_request_that_says_twice_what_is_read_is_refused(size, line, monkeypatch):
    monkeypatch.setattr(rawjson, "SLICE", size)
    with pytest.raises(MalformedMessageError, match="is there twice"):
        jsonrpc.decode(line)


@pytest.mark.parametrize(
    "inner",
    [
        b'"name":"a","name":"b","_meta":{"clientInfo":{"name":"c"}}',
        b'"_meta":{"clientInfo":{"name":"c"}},"name":"a","_meta":{"clientInfo":{"name":"c"}}',
        b'"name":"a","arguments":{"name":"x"},"arguments":{"name":"x"}',
        b'"uri":"a","arguments":{"uri":1},"uri":"b"',
        b'"name":"a","_meta":{"name":"c"},"na\\u006de":"b"',
    ],
)
def test_a_member_that_is_there_twice_is_refused_beside_nested_ones(inner):
    with pytest.raises(MalformedMessageError, match="is there twice"):
        jsonrpc.decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%b}}' % inner)


@pytest.mark.parametrize(
    "inner",
    [
        b'"name":"a","_meta":{"clientInfo":{"name":"c"}}',
        b'"name":"name","arguments":{"name":"x","id":1,"uri":"u"},"_meta":{"clientInfo":{"name":"c"}}',
        b'"name":"a","arguments":"name","vendor":{"name":"x"}',
    ],
)
def test_nested_members_of_the_same_name_are_no_repetition(inner):
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%b}}' % inner
    assert jsonrpc.decode(line).line == line


def test_a_notification_with_an_id_of_null_is_a_notification():
    message = jsonrpc.decode(b'{"jsonrpc":"2.0","id":null,"method":"notifications/message","params":{"x":1.0}}')
    assert (message.id, message.line) == (
        None,
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"x":1.0}}',
    )


def test_a_request_that_says_something_twice_is_refused_however_deep_it_nests():
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 1):
        with pytest.raises(MalformedMessageError):
            jsonrpc.decode(b'{"id":1,"method":"a","id":2,"x":' + b"[" * depth + b"]" * depth + b"}")


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"method":"id","params":{"id":1,"name":"name","arguments":{"id":2,"name":"n","name":"m"}}}',
        b'{"id":1,"method":"a\\u00e9","params":{"name":"method","x":"\\"name\\":"}}',
        b'{"id":1,"method":"a","params":["name","name",{"name":1}]}',
        b'{"id":1,"method":"a","x\\"id":1,"y\\"id":"\\u0022id"}',
        b'{"id":1,"method":"a\\u00e9","params":["name","name"]}',
        b'{"id":1,"method":"ping","\\ud800":"\\u0041"}',
        b'{"id":1,"method":"a","vendor":1,"vendor":2,"more":{"id":1,"method":"b","params":[]}}',
        b'{"id":1,"result":{"id":1,"id":2}}',
    ],
)
def test_equal_names_elsewhere_are_nobody_s_business(line):
    assert jsonrpc.decode(line).line == line


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_a_message_on_several_lines_is_put_on_one(newline):
    message = jsonrpc.decode(b'{"id":1,%b"method":"a",%b"params":{"k":%b"x\\ny"}}' % (newline, newline, newline))
    blank = b" " * len(newline)
    assert message.line == b'{"id":1,%b"method":"a",%b"params":{"k":%b"x\\ny"}}' % (blank, blank, blank)
    assert bytes(message.params) == b'{"k":%b"x\\ny"}' % blank


@pytest.mark.parametrize("start", [b'{"id":null,', b'{"jsonrpc":"2.0",', b'{"jsonrpc":"2.0","result":null,'])
def test_an_error_without_a_readable_id_is_a_response(start):
    message = jsonrpc.decode(start + b'"error":{"code":-32700,"message":"x"}}')
    assert message.is_response
    assert message.id == b"null"


def test_a_null_error_beside_a_result_is_none():
    message = jsonrpc.decode(b'{"id":1,"result":{"a":1},"error":null}')
    assert not message.error
    assert bytes(message.result) == b'{"a":1}'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b"1.0"),
        (b"1", b"10e-1"),
        (b"0", b"-0"),
        (b"100", b"1E2"),
        (b'"a"', b'"\\u0061"'),
        (b'"\xc3\xa9"', b'"\\u00e9"'),
        (b'"\\/"', b'"/"'),
    ],
)
def test_ids_that_mean_the_same_have_one_key(one, other):
    assert jsonrpc.id_key(one) == jsonrpc.id_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b'"1"'),
        (b"1", b"2"),
        (b"1", b"-1"),
        (b"1.5", b"1"),
        (b"12345678901234567890", b"12345678901234567891"),
        (b"9007199254740993.0", b"9007199254740992"),
        (b'"\\ud83d"', b'"\\ud83e"'),
        (b'"\\ud83d"', b'"\xef\xbf\xbd"'),
    ],
)
def test_ids_that_mean_different_things_have_different_keys(one, other):
    assert jsonrpc.id_key(one) != jsonrpc.id_key(other)


@given(IDS)
def test_an_id_s_key_is_an_id_with_the_same_key(message_id):
    key = jsonrpc.id_key(message_id.encode())
    assert jsonrpc.id_key(key) == key


@pytest.mark.parametrize("raw", [b"null", b"true", b"", b"{}", b"[1]"])
def test_what_cannot_be_an_id_is_its_own_key(raw):
    assert jsonrpc.id_key(raw) == raw


def test_new_messages_are_exact_to_the_byte():
    assert jsonrpc.request(b'"a"', "m/é").line == '{"jsonrpc":"2.0","id":"a","method":"m/é","params":{}}'.encode()
    assert jsonrpc.request(b"1", "m", b"[1.0]").line == b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1.0]}'
    assert jsonrpc.notification("n").line == b'{"jsonrpc":"2.0","method":"n"}'
    assert jsonrpc.notification("n", b'{"a":1}').line == b'{"jsonrpc":"2.0","method":"n","params":{"a":1}}'
    assert jsonrpc.result(b"1", b"[ ]").line == b'{"jsonrpc":"2.0","id":1,"result":[ ]}'
    assert jsonrpc.error(None, -1, "x").line == b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x"}}'
    data = jsonrpc.error(b"2", -1, "x", {"a": 1}).line
    assert data == b'{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"x","data":{"a":1}}}'


@pytest.mark.parametrize(
    "made",
    [
        jsonrpc.request(b"1", "m", b'{"a":1}'),
        jsonrpc.notification("n", b"[1]"),
        jsonrpc.result(b"1", b"{}"),
        jsonrpc.error(b"1", -5, "x", [1]),
    ],
)
def test_new_messages_are_what_they_read_back_as(made):
    assert fields(made) == fields(jsonrpc.decode(made.line))


def fields(message):
    parts = {name: bytes(getattr(message, name)) for name in ("params", "result", "error")}
    return SimpleNamespace(id=message.id, method=message.method, line=message.line, **parts)


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b'{"code":-5}', -5), (b'{"code":"x"}', None), (b'{"code":true}', None), (b"{}", None), (b"1", None)],
)
def test_the_code_of_an_error_is_its_number(raw, code):
    assert jsonrpc.error_code(jsonrpc.decode(b'{"id":1,"error":%b}' % raw)) == code
    assert jsonrpc.error_code(jsonrpc.result(b"1", raw)) is None


@pytest.mark.parametrize(
    ("raw", "failed"),
    [
        (b'{"content":[],"isError":true}', True),
        (b'{"content":[],"isError":false}', False),
        (b'{"content":[{"text":"\\"isError\\":true"}]}', False),
        (b'{"structuredContent":{"isError":true}}', False),
        (b"1", False),
    ],
)
def test_only_the_result_s_own_word_makes_a_tool_error(raw, failed):
    assert jsonrpc.is_tool_error(jsonrpc.result(b"1", raw)) is failed


def test_a_message_shows_its_envelope_and_not_its_payload():
    assert repr(jsonrpc.request(b"1", "m", b'{"secret":"s"}')) == "Message(id=b'1', method='m', 61 bytes)"


LONG = "x" * rawjson.SLICE


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":7,"result":{"text":"%s"}}',
        '{"id": "seven", "method":"tools/call","params":{"name":"%s"}}',
        '{"result":{"text":"%s"},"jsonrpc":"2.0", "id" : 7 , "jsonrpc":"2.0" }',
        '{"result":{"id":1,"text":"%s"},"id":7}',
        '{"result":{"text":"%s"},"id":7,"more":{"id":1}}',
        '{"result":{"text":"%s"},"more":{"id":1}, "\\u0069d":7}',
        '{"result":"%s \\ud83d","id":7}',
        '{"id":7,"result":{"text":"%s"},"id":8}',
    ],
)
@pytest.mark.parametrize("text", ["x", LONG])
def test_a_message_gets_another_id_however_long_it_is(line: str, text: str) -> None:
    message = jsonrpc.decode((line % text).encode())
    changed = message.replace(id=b'"new"')
    assert changed.id == b'"new"'
    assert json.loads(changed.line) == {**json.loads(message.line), "id": "new"}
    assert (changed.method, bytes(changed.params), bytes(changed.result)) == (
        message.method,
        bytes(message.params),
        bytes(message.result),
    )
    assert jsonrpc.decode(changed.line).id == b'"new"'


@pytest.mark.parametrize("padding", [b"", b" " * 20_000])
def test_a_response_with_two_ids_gets_one_that_every_reader_takes(padding):
    line = b'{"jsonrpc":"2.0","id":1,"more":1,"id":21,"result":{}%b}' % padding
    changed = jsonrpc.decode(line).replace(id=b'"new"')
    assert (changed.id, jsonrpc.decode(changed.line).id, changed.line.count(b'"id"')) == (b'"new"', b'"new"', 1)
