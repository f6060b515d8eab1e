"""The routing headers of the modern era, compared with what the MCP SDK makes and accepts."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from mcp.shared import inbound

from riglm.adapters.mcp import headers
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message

VERSION = protocol.MODERN_VERSIONS[-1]
ENVELOPE = {protocol.META_VERSION: VERSION, protocol.META_CAPABILITIES: {}}

# what a header can carry on the wire, as a server reads it
LATIN = st.text(st.characters(max_codepoint=0xFF, exclude_categories=["Cc"]), max_size=20).map(
    lambda one: one.strip(" \t")
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WRAPPED = st.one_of(
    TEXT.map(lambda one: inbound.encode_header_value(one + "é")),
    st.text(max_size=12).map(lambda one: f"=?base64?{one}?="),
    st.binary(max_size=9).map(lambda one: f"=?base64?{base64.b64encode(one).decode()}?="),
)
NAMES = st.sampled_from(["a", "b", "c", "properties", "x-mcp-header", "é", ""])


SCHEMAS = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "boolean"])},
        optional={"x-mcp-header": st.sampled_from(["A", "B", "C", "D-e"])},
    ),
).map(lambda found: {"type": "object", "properties": found})
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([42, 42.0, -0.0, 1e16, 1e22, 10**400]),
        TEXT,
    ),
    lambda children: st.one_of(st.lists(children, max_size=2), st.dictionaries(NAMES, children, max_size=3)),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


def call(arguments: Any, name: Any = "t", method: str = "tools/call") -> Message:
    params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
    return jsonrpc.decode(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())


def block(message: Message, annotated: tuple[headers.AnnotatedParameter, ...]) -> dict[str, str]:
    """The header block that is sent, as the receiver's header mapping."""
    lines = headers.for_request(message, VERSION.encode(), annotated).decode().split("\r\n")[:-1]
    return dict(line.split(": ", 1) for line in lines)


def on_the_wire(sent: dict[str, str]) -> dict[bytes, bytes]:
    """Headers as bytes; a case with a header that no wire can carry is not one."""
    assume(all(ord(char) < 0x100 for value in sent.values() for char in value))
    return {name.encode(): value.encode("latin-1") for name, value in sent.items()}


@given(TEXT)
@example("=?base64?x?=")
@example(" edge")
@example("\x7f")
def test_a_value_is_written_as_the_sdk_writes_it(value: str):
    assert headers.encode_value(value) == inbound.encode_header_value(value)
    assert headers.decode_value(headers.encode_value(value)) == value


@given(st.one_of(LATIN, WRAPPED, TEXT))
@example("=?base64?w6k=?=")
@example("=?base64?w6l=?=")
@example("=?base64?/w==?=")
@example("=?base64??=")
@example("=?base64?é?=")
def test_a_value_is_read_as_the_sdk_reads_it(value: str):
    try:
        expected = inbound.decode_header_value(value)
    except ValueError:  # the SDK trips over a payload that is not ASCII
        expected = None
    assert headers.decode_value(value) == expected


@given(SCHEMAS, ARGUMENTS)
def test_arguments_are_repeated_as_the_sdk_repeats_them(schema: Any, arguments: dict[str, Any]):
    if inbound.find_invalid_x_mcp_header(schema) is not None:
        return
    sent = block(call(arguments), headers.annotated(json.dumps(schema).encode()))
    expected = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)
    assert {name[10:]: value for name, value in sent.items() if name.startswith("mcp-param-")} == {
        name[10:]: value for name, value in expected.items()
    }


@st.composite
def headed_calls(draw: st.DrawFn) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """A schema, arguments, and headers that agree with them, but for a few that were changed."""
    schema = draw(SCHEMAS)
    arguments = draw(ARGUMENTS)
    sent = {
        name.lower(): value
        for name, value in inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments).items()
    }
    names = [f"mcp-param-{one}" for one in ("a", "b", "c", "d-e", "region", "z")]
    changes = draw(
        st.dictionaries(
            st.sampled_from(names),
            st.one_of(
                st.none(), LATIN, WRAPPED, st.sampled_from(["42", "42.0", "42.10", "-0", "1e16", "true", "9" * 5000])
            ),
            max_size=2,
        )
    )
    for name, value in changes.items():
        if value is None:
            sent.pop(name, None)
        else:
            sent[name] = value
    return schema, arguments, sent


@given(headed_calls())
def test_headers_are_compared_with_arguments_as_the_sdk_compares_them(made: tuple[Any, dict[str, Any], dict[str, str]]):
    schema, arguments, sent = made
    try:
        expected = inbound.validate_mcp_param_headers(schema, arguments, sent)
    except ValueError:
        return  # the SDK trips over a base64 payload that is not ASCII
    routing = {b"mcp-method": b"tools/call", b"mcp-name": b"t"}
    found = headers.mismatch(
        call(arguments), on_the_wire(sent) | routing, headers.annotated(json.dumps(schema).encode())
    )
    assert (found is None) == (expected is None), (found, expected)


@given(
    st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list", "vendor/thing", ""]),
    st.dictionaries(
        st.sampled_from(["name", "uri"]),
        st.one_of(TEXT, st.none(), st.integers(), st.just([]), st.just("")),
        max_size=2,
    ),
    st.one_of(st.none(), LATIN, WRAPPED, st.just("same")),
    st.one_of(st.none(), st.just("same"), LATIN),
)
def test_routing_headers_are_compared_as_the_sdk_compares_them(
    method: str, named: dict[str, Any], name_header: str | None, method_header: str | None
):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**named, "_meta": ENVELOPE}}
    sent: dict[str, str] = {"mcp-protocol-version": VERSION}
    value = named.get("uri" if method == "resources/read" else "name")
    if name_header is not None:
        sent["mcp-name"] = inbound.encode_header_value(str(value)) if name_header == "same" else name_header
    if method_header is not None:
        sent["mcp-method"] = method if method_header == "same" else method_header
    try:
        expected = inbound.classify_inbound_request(body, headers=sent)
    except ValueError:
        return  # the SDK trips over a base64 payload that is not ASCII
    message = jsonrpc.decode(json.dumps(body).encode())
    found = headers.mismatch(message, on_the_wire(sent), ())
    assert (found is None) == isinstance(expected, inbound.InboundModernRoute), (found, expected)


@pytest.mark.parametrize("digits", [4299, 4301, 20_000])
def test_a_number_of_any_length_is_compared_without_an_error(digits: int):
    schema = b'{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}'
    annotated = headers.annotated(schema)
    own = {b"mcp-method": b"tools/call", b"mcp-name": b"t", b"mcp-param-n": b"7" * digits}
    assert headers.mismatch(call({"n": 7}), own, annotated) is not None
    whole = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":%b}}}'
    headers.for_request(jsonrpc.decode(whole % (b"7" * digits)), VERSION.encode(), annotated)


def test_a_schema_that_cannot_be_read_marks_nothing():
    assert headers.annotated(b'{"x-mcp-header":') == ()
    assert headers.annotated(msgspec.Raw(b"[" * 100_000 + b'"x-mcp-header"')) == ()


def test_a_lone_surrogate_stands_as_a_replacement_character():
    annotated = headers.annotated(b'{"properties":{"n":{"type":"string","x-mcp-header":"N"}}}')
    message = jsonrpc.decode(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":"\\ud800"}}}'
    )
    assert block(message, annotated)["mcp-param-N"] == headers.encode_value("\ufffd")


@pytest.mark.parametrize(
    ("value", "header", "agree"),
    [
        (42, b"42", True),
        (42, b"42.00", True),
        (42, b"42.5", False),
        (42, b"43", False),
        (42, b"4e1", False),
        (42.0, b"42", True),
        (True, b"true", True),
        (True, b"1", False),
        ("42", b"42", True),
        ("\u00e9", b"=?base64?w6k=?=", True),
        ("\u00e9", b"=?base64?w6k?=", False),
        ("\u00e9", b"=?base64?\xe9?=", False),
        (None, None, True),
        (None, b"", False),
        ([42], b"42", False),
        ([42], None, True),
        (42, None, False),
    ],
)
def test_a_header_and_its_argument_agree_or_not(value: Any, header: bytes | None, agree: bool):
    annotated = headers.annotated(b'{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}')
    sent = {b"mcp-method": b"tools/call", b"mcp-name": b"t"} | ({b"mcp-param-n": header} if header is not None else {})
    assert (headers.mismatch(call({"n": value}), sent, annotated) is None) == agree


@pytest.mark.parametrize(
    "schema",
    [
        {"x-mcp-header": "Root", "type": "string"},
        {"properties": {"a": {"x-mcp-header": "A", "type": "number"}}},
        {"properties": {"a": {"x-mcp-header": "A"}}},
        {"properties": {"a": {"x-mcp-header": "A b", "type": "string"}}},
        {"properties": {"a": {"x-mcp-header": 1, "type": "string"}}},
        {"properties": {name: {"x-mcp-header": "A", "type": "string"} for name in "ab"}},
        {"items": {"properties": {"a": {"x-mcp-header": "A", "type": "string"}}}},
        {"anyOf": [{"x-mcp-header": "A", "type": "string"}]},
        {"$defs": {"a": {"x-mcp-header": "A", "type": "string"}}},
    ],
)
def test_a_mark_out_of_place_takes_all_marks_away(schema: dict[str, Any]):
    schema = {**schema, "properties": {**schema.get("properties", {}), "z": {"x-mcp-header": "Z", "type": "string"}}}
    assert headers.annotated(json.dumps(schema).encode()) == ()
