"""Comparison of tools with their pins: when it happens, how much of it, and what is held back meanwhile."""

import json
import sys
from collections import Counter
from dataclasses import replace

import pytest

from riglm.application import trust
from riglm.application.trust import PinnedTools
from riglm.application.worker import Worker
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.tool_pin import ToolChange
from tests.unit.application.fakes import Server

ASKED = jsonrpc.request(b"1", "tools/list")


def tools(number=3, **changed):
    """Raw tools of this number; `changed` are descriptions by name."""
    names = [f"tool{each}" for each in range(number)]
    listed = [{"name": name, "description": changed.get(name, f"Does {name}.")} for name in dict.fromkeys(names)]
    return [Raw(json.dumps(each).encode()) for each in listed]


def answer(entries):
    return jsonrpc.result(b"1", b'{"tools":[%b]}' % b",".join(map(bytes, entries)))


def listed(pins, link, entries):
    """The tools that a client gets of a page with these."""
    page, result = pins.review_page(link, link.tools_version, answer(entries), is_first=True)
    assert result == bytes(page.result)
    return jsonrpc.elements(jsonrpc.members(page.result)["tools"])


@pytest.fixture
def digests(monkeypatch):
    """The number of digests that were computed, by name of the tool."""
    computed, digest = Counter(), trust.definition_digest

    def counting(raw):
        computed[jsonrpc.text(jsonrpc.members(raw)["name"])] += 1
        return digest(raw)

    monkeypatch.setattr(trust, "definition_digest", counting)
    return computed


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let comparisons take as long as they do on a busy machine."""
    monkeypatch.setattr(trust, "_CLOSE_SECONDS", 60.0)


@pytest.fixture
def link():
    return Server("far").stateless(None)


class Recorded:
    """What was recorded and reported, and pins that were read from an empty store."""

    def __init__(self, mode, list_spooled=tuple, *, is_read=True):
        self.recorded, self.reported = [], []
        self.pins = PinnedTools(
            {"far": mode},
            lambda pin, _: self.recorded.append(pin),
            on_report=self.reported.append,
            list_spooled=list_spooled,
            clock=lambda: 5.0,
        )
        if is_read:
            self.pins.read([])


async def test_tools_that_are_only_noted_are_compared_after_the_answer(link, digests):
    made = Recorded("note")
    assert listed(made.pins, link, tools()) == tools()
    assert not digests
    await made.pins.close()
    assert {pin.name: pin.change for pin in made.recorded} == dict.fromkeys(("tool0", "tool1", "tool2"))
    assert listed(made.pins, link, tools(4, tool1="Sends all.")) == tools(4, tool1="Sends all.")
    await made.pins.close()
    assert {pin.name: pin.change for pin in made.reported} == {"tool1": ToolChange.CHANGED, "tool3": ToolChange.ADDED}


@pytest.mark.parametrize("mode", ["note", "hold", "block"])
async def test_a_list_with_the_same_bytes_is_not_compared_again(link, digests, mode):
    made = Recorded(mode)
    for entries in (tools(), tools(3, tool1="Sends all.")):
        listed(made.pins, link, entries)
        await made.pins.close()
        digests.clear()
        first = listed(made.pins, link, entries)
        assert listed(made.pins, link, entries) == first
        assert made.pins.review("far", entries) == made.pins.review("far", entries)
        await made.pins.close()
        assert not digests or mode != "note"
    seen = listed(made.pins, link, tools(3, tool1="Sends all."))
    assert [len(seen), bytes(seen[1]) if seen else b""] == {
        "note": [3, bytes(tools(3, tool1="Sends all.")[1])],
        "hold": [3, bytes(tools()[1])],
        "block": [0, b""],
    }[mode]


async def test_an_approval_during_a_comparison_is_kept(link):
    made = Recorded("note")
    listed(made.pins, link, tools())
    await made.pins.close()
    listed(made.pins, link, tools(3, tool1="Sends all."))
    await made.pins.close()
    [pin] = made.reported
    listed(made.pins, link, tools(3, tool1="Sends all.", tool2="Sends more."))
    made.pins.read([replace(pin, digest=pin.seen_digest, definition=pin.seen)])
    await made.pins.close()
    assert [each.name for each in made.reported] == ["tool1", "tool2"]
    assert made.recorded[-1].name == "tool2"


@pytest.mark.parametrize("raw", [b"{}", b'{"tools":7}', b"[]"])
async def test_an_answer_without_tools_compares_nothing(link, raw):
    made = Recorded("hold")
    page, _ = made.pins.review_page(link, 1, jsonrpc.result(b"1", raw), is_first=True)
    assert bytes(page.result) == raw or raw == b'{"tools":7}'
    assert made.pins.refusal("far", "tool1", link)


async def test_the_cost_of_a_call_does_not_grow_with_the_number_of_tools(link):
    def calls(number):
        made = Recorded("hold")
        listed(made.pins, link, tools(number))
        made.pins.refusal("far", "tool1", link)
        counted = 0

        def count(_, event, __):
            nonlocal counted
            counted += event in {"call", "c_call"}

        sys.setprofile(count)
        assert made.pins.refusal("far", "tool1", link) is None
        sys.setprofile(None)
        return counted

    assert calls(500) == calls(5)


class Store:
    """A store with these pins."""

    def __init__(self, *pins):
        self.pins = pins

    def list_tool_pins(self, servers):
        return [pin for pin in self.pins if pin.server in servers]


@pytest.fixture
def worker():
    with Worker("asking") as worker:
        yield worker


async def pins_of(link, *lists):
    """The pins of a process that got these lists, one after the other."""
    made = Recorded("hold")
    for entries in lists:
        listed(made.pins, link, entries)
        await made.pins.close()
    return made.recorded


async def test_spooled_pins_approve_nothing_that_the_store_has_in_another_form(link, worker):
    stored = await pins_of(link, tools())
    spooled = [replace(pin, seen_at=9.0) for pin in await pins_of(link, tools(3, tool1="Sends all."))]
    made = Recorded("hold", lambda: spooled, is_read=False)
    await made.pins.refresh(worker, lambda: Store(*stored))
    assert made.pins.refusal("far", "tool1")
    assert listed(made.pins, link, tools(3, tool1="Sends all.")) == tools()


async def test_lists_that_cannot_be_compared_before_the_end_are_reported(link, caplog, monkeypatch):
    monkeypatch.setattr(trust, "_CLOSE_SECONDS", 0.0)
    made = Recorded("note", is_read=False)
    listed(made.pins, link, tools())
    await made.pins.close()
    [record] = [each for each in caplog.records if "not compared" in each.message]
    assert record.upstreams == ["far"]
