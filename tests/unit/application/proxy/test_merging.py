"""Lists of several servers as one, shared by all who have the same."""

import gc

import pytest

from riglm.application.proxy.merging import Directory, MergedListCache, merged
from riglm.domain import jsonrpc
from riglm.domain.naming import MAX, prefixed

TOOLS, RESOURCES, TEMPLATES = "tools/list", "resources/list", "resources/templates/list"


def entries(*raws):
    return jsonrpc.elements(b"[%b]" % b",".join(raws))


def named(*names, key="name"):
    return entries(*(jsonrpc.encode({key: name}) for name in names))


def directory(naming="prefix", servers=("a", "b")):
    return Directory(servers, MergedListCache(naming))


def test_entries_keep_everything_but_their_names_in_the_order_of_servers():
    known = directory()
    known.learn(TOOLS, "b", entries(b'{ "x":1.0,"name":"t\\u0031" , "_meta":{"k": 1}}'))
    known.learn(
        TOOLS, "a", entries(b'{"name":"t"}', b'{"title":"nameless"}', b"3", b'{"name":"u"}', b'{"name":"t","again":1}')
    )
    joined = known.joined(TOOLS)
    assert joined.raw == b'[{"name":"a__t"},{"name":"a__u"},{"x":1.0,"name":"b__t1","_meta":{"k": 1}}]'
    assert joined.catalog.names == ("a__t", "a__u", "b__t1")
    assert joined.owners == {"a__t": ("a", "t"), "a__u": ("a", "u"), "b__t1": ("b", "t1")}


def test_what_needs_no_new_name_stays_as_it_came():
    known = directory("none")
    known.learn(TOOLS, "a", entries(b'{ "name" : "t\\u0031" }'))
    assert known.joined(TOOLS).raw == b'[{ "name" : "t\\u0031" }]'
    known.learn(RESOURCES, "b", entries(b'{ "uri" : "u" }'))
    assert known.joined(RESOURCES).raw == b'[{ "uri" : "u" }]'


def test_learning_says_whether_the_list_is_another_one():
    known = directory()
    assert not known.knows_any(TOOLS)
    assert known.learn(TOOLS, "a", named("t"))
    assert not known.learn(TOOLS, "a", named("t"))
    assert known.learn(TOOLS, "a", ())
    assert known.learn(TOOLS, "b", ())
    assert known.knows(TOOLS, "a")
    assert known.knows_any(TOOLS)
    assert not known.knows("prompts/list", "a")
    assert known.joined(TOOLS).raw == b"[]"


def test_equal_lists_are_one_object_for_all_clients_and_go_with_the_last():
    merged_lists = MergedListCache("prefix")
    clients = [Directory(("a", "b"), merged_lists) for _ in range(3)]
    for client in clients:
        for server in ("a", "b"):
            client.learn(TOOLS, server, named("t", "u"))
    assert len({id(client.joined(TOOLS)) for client in clients}) == 1
    assert len({id(client.joined(TOOLS).catalog) for client in clients}) == 1
    clients[0].learn(TOOLS, "a", named("other"))
    assert clients[0].joined(TOOLS) is not clients[1].joined(TOOLS)
    assert clients[1].joined(TOOLS).raw == clients[2].joined(TOOLS).raw
    clients.clear()
    del client
    gc.collect()
    assert (len(merged_lists._lists), len(merged_lists._joined)) == (0, 0)


def test_pages_that_a_server_sends_again_are_not_read_again():
    merged_lists = MergedListCache("prefix")

    def pages(*names):
        listed = b"[%b]" % b",".join(b'{"name":"%b"}' % name for name in names)
        return [jsonrpc.result(b"1", b'{"tools":%b}' % listed)]

    first = merged_lists.entries("tools/list", "a", pages(b"x", b"y"))
    assert [bytes(entry) for entry in first] == [b'{"name":"x"}', b'{"name":"y"}']
    assert merged_lists.entries("tools/list", "a", pages(b"x", b"y")) is first
    listed = merged_lists.of_server("tools/list", "a", first)
    assert listed is merged_lists.of_server("tools/list", "a", list(first))
    other = merged_lists.entries("tools/list", "a", pages(b"x"))
    assert [bytes(entry) for entry in other] == [b'{"name":"x"}']
    assert merged_lists.of_server("tools/list", "a", other).names == ("x",)
    assert merged_lists.entries("tools/list", "b", pages(b"x")) is not other


def test_lists_that_differ_in_one_byte_or_only_in_where_entries_end_are_different():
    merged_lists = MergedListCache("none")
    raws = [entries(b'{"name":"t"}'), entries(b'{"name": "t"}'), entries(b"1", b"2"), entries(b"12"), entries(b"[1,2]")]
    lists = [merged_lists.of_server(TOOLS, "a", raw) for raw in raws]
    lists += [merged_lists.of_server(TOOLS, "b", raws[0]), merged_lists.of_server("prompts/list", "a", raws[0])]
    assert len(set(lists)) == 7


@pytest.mark.parametrize(
    ("naming", "name", "owner"),
    [
        ("prefix", "a__t", ("a", "t")),
        ("prefix", "t", None),
        ("prefix", "a__hidden", ("a", "hidden")),
        ("prefix", "b__late", ("b", "late")),
        ("prefix", "A__t", None),
        ("on_collision", "t", ("a", "t")),
        ("on_collision", "a__t", ("a", "t")),
        ("none", "t", ("a", "t")),
        ("none", "a__t", None),
        ("none", "unknown", None),
    ],
)
def test_a_name_has_the_owner_that_its_list_or_its_prefix_says(naming, name, owner):
    known = directory(naming)
    known.learn(TOOLS, "a", named("t"))
    assert known.owner(TOOLS, name) == owner


@pytest.mark.parametrize("method", [TOOLS, "prompts/list"])
def test_what_a_short_form_stands_for_is_not_guessed(method):
    known, short = directory(), prefixed("a", "t" * 70)
    assert known.owner(method, short) is None
    assert known.owner(method, "a__t") == ("a", "t")
    known.learn(method, "a", named("u"))
    assert known.owner(method, short) == ("a", short.removeprefix("a__"))
    known.learn(method, "a", named("t" * 70))
    assert known.owner(method, short) == ("a", "t" * 70)


def test_a_uri_belongs_to_who_listed_it_then_to_the_template_that_says_most():
    known = directory(servers=("a", "b", "c"))
    known.learn(RESOURCES, "b", named("note://b/1", key="uri"))
    known.learn(TEMPLATES, "a", named("{+anything}", key="uriTemplate"))
    known.learn(TEMPLATES, "b", named("note://{x}", key="uriTemplate"))
    known.learn(TEMPLATES, "c", named("note://c/{x}", "note://{y}", key="uriTemplate"))
    owners = {uri: known.owner_of_uri(uri) for uri in ("note://b/1", "note://c/1", "note://d/1", "x")}
    assert owners == {"note://b/1": "b", "note://c/1": "c", "note://d/1": "b", "x": "a"}


def test_a_name_claimed_twice_is_the_first_server_s_and_said_once(caplog):
    merged_lists = MergedListCache("none")
    for _ in range(3):
        known = Directory(("a", "b"), merged_lists)
        known.learn(TOOLS, "b", named("t", "u"))
        known.learn(TOOLS, "a", named("t"))
        known.learn(RESOURCES, "a", named("same", key="uri"))
        known.learn(RESOURCES, "b", named("same", key="uri"))
        assert known.owner(TOOLS, "t") == ("a", "t")
        assert known.joined(TOOLS).catalog.names == ("t", "u")
        assert known.owner_of_uri("same") == "a"
    (told,) = caplog.records
    assert (told.levelname, told.claimed, told.first, told.left_out) == ("ERROR", ["t"], "a", "b")


@pytest.mark.parametrize(
    ("naming", "spelling", "all_of_them"),
    [
        ("prefix", "a__t", ("a__t",)),
        ("prefix", "t", ("t",)),
        ("on_collision", "t", ("t",)),
        ("on_collision", "a__t", ("a__t", "t")),
        ("none", "a__t", ("a__t",)),
        ("none", "nowhere", ("nowhere",)),
    ],
)
def test_a_tool_is_told_by_every_name_that_leads_to_it(naming, spelling, all_of_them):
    known = directory(naming)
    known.learn(TOOLS, "a", named("t"))
    assert known.name_patterns(spelling) == all_of_them


def test_the_names_of_a_tool_are_told_before_its_list_is_known():
    long = "x" * 80
    assert directory("prefix").name_patterns("a__t") == ("a__t",)
    whole, cut = directory("prefix").name_patterns(f"a__{long}")
    assert (whole, len(cut)) == (f"a__{long}", MAX)
    assert directory("on_collision").name_patterns("a__t") == ("a__t", "t")
    assert directory("none").name_patterns("a__t") == ("a__t",)


# --- what several servers say of themselves, said as one ---


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"tools": {"listChanged": True}}, {"tools": {"listChanged": False}}, {"tools": {"listChanged": True}}),
        ({"tools": {"listChanged": False}}, {"tools": {"listChanged": True}}, {"tools": {"listChanged": True}}),
        ({"resources": {"subscribe": True}}, {"prompts": {}}, {"resources": {"subscribe": True}, "prompts": {}}),
        ({"a": [1, 2]}, {"a": [2, 3]}, {"a": [1, 2, 3]}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
    ],
)
def test_objects_arrays_and_truths_are_joined(one, other, both):
    assert merged(one, other) == both
