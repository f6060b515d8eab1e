"""What riglm reads of a request's params."""

import pytest

from riglm.domain import jsonrpc, request_params
from riglm.domain.session import ClientInfo

META = (
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},'
    b'"io.modelcontextprotocol/clientCapabilities":{},"vendor":1.0}'
)


def asked(params):
    return jsonrpc.decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params)


def test_members_are_read_as_they_came():
    given = request_params.read(asked(b'{"name":"a\\u0062","arguments":{"n":1.0},"uri":"u","_meta":{"k": 1},"x":2}'))
    parts = [bytes(part) for part in (given.name, given.arguments, given.uri, given.meta)]
    assert parts == [b'"a\\u0062"', b'{"n":1.0}', b'"u"', b'{"k": 1}']


def test_members_beside_a_lone_surrogate_are_read_as_they_came():
    given = request_params.read(asked(b'{"name":"\\ud83d","arguments":{"n":"\\ud83d"}}'))
    assert (bytes(given.name), bytes(given.arguments), bytes(given.uri)) == (b'"\\ud83d"', b'{"n":"\\ud83d"}', b"")


@pytest.mark.parametrize("meta", [META, META.replace(b"/", b"\\/")], ids=["plain", "escaped"])
def test_the_envelope_says_version_client_and_whether_it_is_complete(meta):
    envelope = request_params.envelope(asked(b'{"_meta":%b}' % meta))
    assert envelope is not None
    assert (envelope.version, envelope.client) == ("2026-07-28", ClientInfo(name="c", version="1"))
    assert envelope.complete
    assert bytes(envelope.meta) == meta


@pytest.mark.parametrize(
    "params",
    [
        b"{}",
        b"[1]",
        b'{"protocolVersion":"2025-11-25"}',
        b'{"_meta":{"protocolVersion":"2026-07-28"}}',
        b'{"_meta":3,"x":"io.modelcontextprotocol/protocolVersion"}',
        b'{"arguments":%b}' % META,
    ],
)
def test_a_request_without_an_envelope_belongs_to_the_handshake_era(params):
    assert request_params.envelope(asked(params)) is None


@pytest.mark.parametrize(
    ("params", "client", "version"),
    [
        (b'{"protocolVersion":"v","clientInfo":{"name":"c","version":"1"}}', ClientInfo(name="c", version="1"), "v"),
        (b'{"protocolVersion":1,"clientInfo":[]}', ClientInfo(), ""),
        (b"[]", ClientInfo(), ""),
    ],
)
def test_initialize_says_who_opens(params, client, version):
    assert request_params.client_of(asked(params)) == (client, version)


@pytest.mark.parametrize(
    ("params", "key"), [(b'{"requestId":1.0}', b"1"), (b'{"requestId":"\\u0061"}', b'"a"'), (b"{}", None), (b"", None)]
)
def test_a_cancellation_names_a_request_by_its_key(params, key):
    assert request_params.cancelled_id(jsonrpc.notification("notifications/cancelled", params)) == key
