"""Lists that are read: what is the same is the same object, in the order in which it was first seen."""

import pytest

from riglm.application.proxy.catalogs import CatalogReader, join_pages
from riglm.domain.tool import read_catalog
from tests.unit.application.fakes import tools


@pytest.fixture
def lists():
    return CatalogReader()


def read(lists, *pages, plainly=False):
    return lists.read(join_pages([read_catalog(page) for page in pages]), plainly=plainly)


def test_the_same_tools_in_another_order_are_the_same_list(lists):
    first = read(lists, tools("a", "b", "c"))
    for order in ("cab", "bca", "cba"):
        assert read(lists, tools(*order, vendor=order)) is first
    assert read(lists, tools("c"), tools("b", "a")) is first


def test_an_upstream_that_changes_its_order_has_new_tools_listed_last(lists):
    read(lists, tools("a", "b", "c"))
    assert read(lists, tools("x", "c", "a", "b")).names == ("a", "b", "c", "x")
    assert read(lists, tools("b", "y", "x", "a")).names == ("a", "b", "x", "y")


def test_what_is_read_plainly_is_never_taken_for_what_is_not(lists):
    page = b'{"tools":[{"name":"a"},{"name":"b"},{"name":"c","Name":"d"},5]}'
    whole, plain = read(lists, page), read(lists, page, plainly=True)
    assert (whole.names, plain.names) == (("a", "b", "c"), ("a", "b"))
    assert [bytes(raw) for _, raw in whole.others] == [b"5"]
    assert plain.others == ()


def test_entries_without_a_name_keep_their_places_over_pages(lists):
    catalog = read(lists, b'{"tools":[5,{"name":"a"},null]}', b'{"tools":[{"name":"a"},{"x":1},{"name":"b"}]}')
    entries = [bytes(raw) for raw, _ in catalog.entries()]
    assert entries == [b"5", b'{"name":"a"}', b"null", b'{"x":1}', b'{"name":"b"}']
