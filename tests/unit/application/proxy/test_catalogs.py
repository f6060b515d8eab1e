"""Lists of tools: read once, remembered by upstream, and never one client's for another."""

from riglm.application.proxy import catalogs
from riglm.application.proxy.catalogs import ListedTools
from riglm.domain import jsonrpc

FIRST = b""


def page(cursor):
    return cursor


def tools(*names, **more):
    entries = [{"name": name, "inputSchema": {"title": name}} for name in names]
    return jsonrpc.encode({"tools": entries, **more})


def test_pages_make_one_catalogue_and_the_first_page_begins_anew():
    known = ListedTools()
    known.read("up", FIRST, tools("a", "b"))
    known.read("up", page(b'"2"'), tools("c", "a"))
    assert known.of("up").names == ("a", "b", "c")
    known.read("up", FIRST, tools("d"))
    assert known.of("up").names == ("d",)


def test_a_tool_is_lacking_only_once_every_page_is_known():
    known = ListedTools()
    assert not known.lacks("up", "x")
    known.read("up", FIRST, tools("a", nextCursor="2"))
    assert not known.lacks("up", "x")
    known.read("up", page(b'"2"'), tools("b", nextCursor=None))
    assert (known.lacks("up", "x"), known.lacks("up", "a"), known.lacks("up", "b")) == (True, False, False)
    assert not known.lacks("other", "x")
    known.read("up", FIRST, tools("a", nextCursor="2"))
    assert not known.lacks("up", "b"), "the list began anew, and its second page may have it still"


def test_pages_that_go_in_circles_are_never_all_known():
    known = ListedTools()
    known.read("up", FIRST, tools("a", nextCursor="2"))
    known.read("up", page(b'"2"'), tools("b", nextCursor="2"))
    assert not known.lacks("up", "x")


def test_endless_pages_are_passed_on_and_not_remembered(monkeypatch):
    monkeypatch.setattr(catalogs, "MAX_PAGES", 3)
    known = ListedTools()
    known.read("up", FIRST, tools("t"))
    for number in range(5):
        cursor = b"%d" % number
        assert known.read("up", page(cursor), tools(f"t{number}")).names == (f"t{number}",)
    assert known.of("up").names == ("t", "t0", "t1")
    assert known.read("up", page(b"0"), tools("new")).names == ("new",)
    assert known.of("up").names == ("t", "new", "t1")
