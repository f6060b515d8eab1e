"""Catalogues: names for riglm, bytes for the client."""

import pytest

from riglm.domain.tool import ToolCatalog, read_catalog

RESULT = (
    b'{"tools":[{"name":"b","inputSchema":{"type": "object"},"x":1.0},{"name":"a"},{"title":"nameless"},'
    b'{"name":7},3,{"name":"b","inputSchema":{"other":1}},{"name":"\\ud83d"}],"nextCursor":"2"}'
)


def test_tools_are_named_in_order_and_stay_as_they_came():
    catalog = read_catalog(RESULT)
    assert catalog.names == ("b", "a", "b", "\ufffd")
    assert bytes(catalog.tools[0].raw) == b'{"name":"b","inputSchema":{"type": "object"},"x":1.0}'
    assert catalog.raw is RESULT


def test_the_first_of_two_tools_with_one_name_wins():
    assert bytes(read_catalog(RESULT).input_schema("b") or b"") == b'{"type": "object"}'


def test_a_tool_without_a_schema_or_an_unknown_one_has_none():
    catalog = read_catalog(RESULT)
    assert catalog.input_schema("a") is None
    assert catalog.input_schema("nobody") is None


def test_what_lists_no_tools_is_empty():
    for result in (b"{}", b'{"tools":3}', b"[]", b"", b'{"tools":[]}'):
        assert read_catalog(result).tools == ()
    assert ToolCatalog().names == ()


@pytest.mark.parametrize(
    ("meta", "missing"),
    [
        (b'{"riglm/missing":["a","b"]}', ("a", "b")),
        (b"{}", ()),
        (b"null", ()),
        (b'{"riglm/missing":5}', ()),
        (b'{"riglm/missing":[5,"a"]}', ("a",)),
    ],
)
def test_an_incomplete_list_names_the_servers_that_are_missing(meta, missing):
    assert read_catalog(b'{"tools":[{"name":"t"}],"_meta":%b}' % meta).missing == missing
