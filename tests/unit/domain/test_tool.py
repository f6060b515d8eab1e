"""Catalogues: names for riglm, bytes for the client."""

import pytest

from riglm.domain.tool import read_catalog

RESULT = (
    b'{"tools":[{"name":"b","inputSchema":{"type": "object"},"x":1.0},{"name":"a"},{"title":"nameless"},'
    b'{"name":7},3,{"name":"b","inputSchema":{"other":1}},{"name":"\\ud83d"}],"nextCursor":"2"}'
)


def test_a_tool_without_a_schema_or_an_unknown_one_has_none():
    catalog = read_catalog(RESULT)
    assert catalog.input_schema("a") is None
    assert catalog.input_schema("nobody") is None


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
