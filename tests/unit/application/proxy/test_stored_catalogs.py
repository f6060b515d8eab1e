"""First lists of later starts: from the catalogs that were recorded, corrected when a server says otherwise."""

import asyncio
from dataclasses import replace

import pytest

from riglm.application.proxy import catalogs
from riglm.application.proxy.catalogs import StoredCatalogs
from riglm.domain import jsonrpc
from riglm.domain.hashing import KeyedHasher
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import MAX_CATALOG_BYTES
from riglm.domain.upstream import UpstreamSpec
from tests.unit.application.fakes import listed, opened, tools
from tests.unit.application.proxy import test_several_servers_modern
from tests.unit.application.proxy.test_several_servers_handshake import (
    INITIALIZE,
    TOOLS_CHANGED,
    Stage,
    call,
    held,
    server,
)
from tests.waiting import WAIT_SECONDS


async def catalogs_of(*servers):
    """What is recorded when a client lists the tools of these servers."""
    stage = Stage(*servers)
    await stage.open()
    await stage.names()
    await stage.conversation.close()
    return stage.records.catalogs


async def later(*servers, initialize=held, catalogs=None, **more):
    """A client of a later start, in front of servers that are not ready yet; the stage and the opening answer."""
    catalogs = await catalogs_of(*servers) if catalogs is None else catalogs
    for each in servers:
        each.answers["initialize"] = initialize
    stage = Stage(*servers, catalogs=catalogs, grace=3600.0, longest_list=3600.0, **more)
    async with asyncio.timeout(WAIT_SECONDS):
        return stage, jsonrpc.plain((await stage.open()).result)


def steady(name, *names, **more):
    """A server with tools and nothing else."""
    return server(name, *names, initialize=opened("tools", instructions=f"{name}!"), **more)


# --- the handshake era ---


async def test_a_call_of_a_recorded_tool_waits_for_its_server():
    stage, _ = await later(steady("a", "t", **{"tools/call": b'{"content":[]}'}), steady("b", "u"))
    sink = stage.send(jsonrpc.request(b"7", "tools/call", call(b"a__t")))
    assert sink.got == []
    (await stage.link("a").next("initialize")).result(opened("tools"))
    assert bytes((await sink.answer()).result) == b'{"content":[]}'
    await stage.conversation.close()


async def test_what_a_server_offers_beyond_its_tools_by_now_is_announced():
    stage, greeting = await later(steady("a", "t"), steady("b", "u"))
    assert "prompts" not in greeting["capabilities"]
    stage.servers["b"].answers["prompts/list"] = listed("prompts", "name", "p")
    (await stage.link("b").next("initialize")).result(opened("tools", "prompts"))
    assert await stage.told(1) == [TOOLS_CHANGED.replace(b"tools", b"prompts")]
    assert bytes((await stage.ask("prompts/list")).result) == b'{"prompts":[{"name":"b__p"}]}'
    await stage.conversation.close()


async def test_only_the_unknown_servers_are_waited_for():
    known, unknown = steady("a", "t"), steady("b", "u")
    stage, _ = await later(known, catalogs=await catalogs_of(known, server("c")))
    await stage.conversation.close()
    stage = Stage(known, unknown, catalogs=await catalogs_of(steady("a", "t"), server("c")), longest_list=3600.0)
    known.answers["initialize"] = held
    await stage.open()
    assert await stage.names() == ["a__t", "b__u"]
    await stage.conversation.close()


async def test_a_client_with_other_capabilities_has_its_own_catalogs():
    recorded = await catalogs_of(steady("a", "t"), steady("b", "u"))
    stage = Stage(steady("a", "t", "ask"), steady("b", "u"), catalogs=recorded, longest_list=3600.0)
    await stage.ask("initialize", INITIALIZE.replace(b'"roots":{}', b'"sampling":{}'))
    assert await stage.names() == ["a__t", "a__ask", "b__u"]
    await stage.conversation.close()


async def test_a_server_that_is_configured_otherwise_is_another_one():
    catalogs = await catalogs_of(steady("a", "t"), steady("b", "u"))
    moved = steady("b", "v")
    moved.spec = replace(moved.spec, url="http://127.0.0.1:2/mcp")
    stage = Stage(steady("a", "t"), moved, catalogs=catalogs, longest_list=3600.0)
    await stage.open()
    assert await stage.names() == ["a__t", "b__v"]
    await stage.conversation.close()


# --- the modern era ---


def modern(name, *names, **more):
    return test_several_servers_modern.server(name, *names, modern=None, **more)


async def later_modern(*servers):
    """A later start in front of servers that do not answer yet."""
    first = test_several_servers_modern.Stage(*servers)
    assert (await first.ask("server/discover")).result
    await first.names()
    await first.modern.close()
    again = [modern(each.spec.name, **{"server/discover": held, "tools/list": held}) for each in servers]
    return test_several_servers_modern.Stage(*again, catalogs=first.records.catalogs, grace=3600.0, longest_list=3600.0)


@pytest.mark.parametrize("changed", [True, False])
async def test_a_listening_client_hears_of_a_list_that_differs(changed):
    stage = await later_modern(modern("a", "t"), modern("b", "u"))
    assert await stage.names() == ["a__t", "b__u"]
    sink, _ = stage.send(9, "subscriptions/listen", b'"notifications":{"toolsListChanged":true}')
    for name in "ab":
        test_several_servers_modern.acknowledge(await stage.link(name).next("subscriptions/listen"), b"{}")
    await sink.until(lambda: len(sink.notes) == 1)
    asked = await stage.link("a").next("tools/list")
    stage.servers["a"].answers["tools/list"] = now = tools("t", *["new"] * changed, ttlMs=60_000)
    asked.result(now)
    if changed:
        await sink.until(lambda: len(sink.notes) == 2)
        assert b"notifications/tools/list_changed" in sink.notes[1]
    assert await stage.names() == ["a__t", *["a__new"] * changed, "b__u"]
    await stage.modern.close()
    assert len(sink.notes) == 1 + changed


async def test_the_tools_of_a_server_that_lost_the_era_are_withdrawn(caplog):
    stage = await later_modern(modern("a", "t"), modern("b", "u"))
    assert await stage.names() == ["a__t", "b__u"]
    (await stage.link("b").next("server/discover")).error(-32601)
    (await stage.link("b").next("tools/list")).error(-32600)
    async with asyncio.timeout(WAIT_SECONDS):
        while await stage.names() != ["a__t"]:
            pass
    assert {record.upstream for record in caplog.records} == {"b"}
    await stage.modern.close()


# --- what is kept ---


SPEC = UpstreamSpec(name="files", kind="stdio", command=("files", "--key", "hunter2"), env={"TOKEN": "secret"})


class Kept:
    """Catalogs that are recorded in a list, at a time that the test sets."""

    def __init__(self):
        self.now = 1000.0
        self.put = []
        self.known = StoredCatalogs(
            KeyedHasher(bytes(32)), lambda item, _: self.put.append(item), clock=lambda: self.now
        )

    def list(self, *names, spec=SPEC, variant="modern"):
        entries = [jsonrpc.Raw(b'{"name":"%b"}' % name) for name in names]
        self.known.note(spec, variant, greeting=(b"{}", ""), entries=entries)


def test_a_catalog_is_recorded_when_it_changed_or_has_not_been_for_a_day():
    kept = Kept()
    kept.list(b"t")
    kept.list(b"t")
    assert len(kept.put) == 1
    kept.list(b"u")
    assert len(kept.put) == 2
    kept.now += catalogs.REFRESH_SECONDS
    kept.list(b"u")
    assert [each.updated_at for each in kept.put] == [1000.0, 1000.0, kept.now]


def test_a_catalog_that_is_too_large_is_known_and_not_recorded():
    kept = Kept()
    kept.list(b"t" * MAX_CATALOG_BYTES)
    assert kept.put == []
    assert kept.known.find(SPEC, "modern").entries


def test_nothing_secret_is_recorded_of_how_a_server_is_reached():
    kept = Kept()
    kept.list(b"t")
    (catalog,) = kept.put
    assert "secret" not in repr(catalog)
    assert "hunter2" not in repr(catalog)
    for other in (replace(SPEC, env={"TOKEN": "other"}), replace(SPEC, command=("files",)), replace(SPEC, name="f")):
        assert kept.known.find(other, "modern") is None


def test_a_store_that_cannot_be_read_leaves_the_catalogs_unknown(caplog):
    def broken(fingerprints):
        raise OSError("no disk")

    kept = Kept()
    kept.known.load([SPEC], broken)
    assert kept.known.find(SPEC, kept.known.variant_for(ProtocolEra.MODERN)) is None
    assert "lists wait for their servers" in caplog.text
