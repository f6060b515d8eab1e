"""The numbers that riglm tells of itself, after calls of which everything is known."""

import json
from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

from riglm.adapters.analytics.sql import SqlAnalytics
from tests.integration.live import FILE, TOOLS, Stage, Upstream, visibility
from tests.unit.adapters.upstream.web import error, reply, result
from tests.waiting import wait_until_async

BARE = "".join(line for line in FILE.splitlines(keepends=True) if "pinned:" not in line)
OPEN = "application/openmetrics-text"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tools so large that hiding them pays before anything is learned."""
    monkeypatch.setattr(Upstream, "description_length", 6_000)


def values(stage: Stage) -> dict[str, float]:
    """Every sample by its name and labels, written as Prometheus writes them."""
    body, _ = stage.container.metrics().scrape(OPEN)
    found = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={text}" for name, text in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def until(stage: Stage, holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """The numbers as soon as something holds of them."""
    return await wait_until_async(lambda: found if holds(found := values(stage)) else None)


def kept(found: dict[str, float]) -> bool:
    """Whether the law holds: what was accepted is stored, queued, spooled or dropped."""
    dropped = sum(value for name, value in found.items() if name.startswith("riglm_records_dropped_total"))
    parts = found["riglm_records_stored_total"] + found["riglm_records_queued"] + found["riglm_records_spooled"]
    return found["riglm_records_accepted_total"] == parts + dropped


async def refuse(caller, message, request):
    await caller.say(reply(error(message)))


async def blame_itself(caller, message, request):
    await caller.say(reply(result(message, {"content": [], "isError": True})))


async def test_calls_their_ends_and_what_riglm_took_of_them(tmp_path):
    text = BARE.replace("    min_tools: 1\n", "    min_tools: 1\n    pinned: [tool01, tool02, tool03]\n")
    async with visibility(tmp_path, text) as stage:
        client = await stage.client()
        before = values(stage)
        assert before["riglm_sessions_live"] == before["riglm_sessions_total{era=handshake,transport=stdio}"] == 1
        await client.listed()
        for _ in range(3):
            assert await client.call("tool01") == "tool01"
        stage.upstream.handlers["tools/call"] = refuse
        await client.call("tool02")
        stage.upstream.handlers["tools/call"] = blame_itself
        await client.ask("tools/call", {"name": "tool03", "arguments": {}})
        await client.ask("tools/call", {"name": "made_up", "arguments": {}})
        assert await client.call("tool39") is None  # is denied, and goes nowhere
        found = values(stage)
        name = found_upstream(found)
        calls = f"riglm_calls_total{{found=listed,outcome=%s,upstream={name}}}"
        assert found[calls % "success"] == 3
        assert found[calls % "protocol"] == 1
        assert found[calls % "tool"] == 1
        assert found[f"riglm_calls_total{{found=named,outcome=protocol,upstream={name}}}"] == 1
        assert found[f"riglm_call_errors_total{{kind=protocol,upstream={name}}}"] == 2
        assert found["riglm_calls_total{found=named,outcome=protocol,upstream=_none}"] == 1
        assert found[f"riglm_call_duration_seconds_count{{upstream={name}}}"] == 6
        assert found[f"riglm_call_overhead_seconds_count{{upstream={name}}}"] == 6
        assert found[f"riglm_call_duration_seconds_sum{{upstream={name}}}"] > 0
        assert found[f"riglm_call_overhead_seconds_sum{{upstream={name}}}"] > 0
        assert found["riglm_hit_rate_calls_total{mode=enforce,result=hit}"] == 4  # a tool's own failure is a use of it
        assert found["riglm_hit_rate_calls_total{mode=enforce,result=missed}"] == 0  # an unknown name is not a use
        assert found[f"riglm_upstream_state{{state=open,upstream={name}}}"] == 1
        assert kept(found)


def found_upstream(found: dict[str, float]) -> str:
    """The name of the one server."""
    names = {name.partition("upstream=")[2].rstrip("}") for name in found if name.startswith("riglm_upstream_state{")}
    (name,) = names
    return name


async def test_lists_hidden_tools_and_searches(tmp_path):
    text = BARE.replace("    min_tools: 1\n", "    min_tools: 1\n    cold_start_limit: 10\n")
    async with visibility(tmp_path, text) as stage:
        client = await stage.client()
        listed = [name for name in await client.listed() if name in TOOLS]
        assert len(listed) < len(TOOLS) - 1
        for _ in range(2):
            asked = {"name": "search_available_tools", "arguments": {"query": "tool38"}}
            await client.ask("tools/call", asked)
        found = values(stage)
        available = found["riglm_list_available_tools_sum{mode=enforce}"]
        shown = found["riglm_list_shown_tools_sum{mode=enforce}"]
        assert found["riglm_list_shown_tools_count{mode=enforce}"] == 1
        assert found["riglm_list_overhead_seconds_count"] == 1
        assert found["riglm_list_overhead_seconds_sum"] > 0
        assert available - shown == len(TOOLS) - 1 - len(listed)  # one is denied, which is not hidden
        assert found["riglm_tokens_hidden_total{mode=enforce}"] > 0
        net = found["riglm_tokens_hidden_total{mode=enforce}"] - found["riglm_tokens_meta_tools_total{mode=enforce}"]
        assert found["riglm_tokens_net{mode=enforce}"] == net
        assert found["riglm_searches_total"] == 2
        assert found["riglm_calls_total{found=listed,outcome=success,upstream=riglm}"] == 2
        assert found["riglm_session_searches_count"] == 0
        await client.close()
        stage.clients.clear()
        ended = values(stage)
        assert (ended["riglm_session_searches_count"], ended["riglm_session_searches_sum"]) == (1, 2)
        assert ended["riglm_sessions_live"] == 0


async def test_in_shadow_mode_the_numbers_are_those_of_the_lists_that_would_have_been(tmp_path):
    text = BARE.replace("    min_tools: 1\n", "    mode: shadow\n    min_tools: 1\n    pinned: [tool01]\n")
    async with visibility(tmp_path, text) as stage:
        client = await stage.client()
        assert len(await client.listed()) == len(TOOLS) - 1  # one is denied
        own = values(stage)["riglm_tokens_meta_tools_total{mode=shadow}"]
        assert own > 0
        await client.call("tool30")
        await client.call("tool01")
        found = values(stage)
        assert found["riglm_hit_rate_calls_total{mode=shadow,result=missed}"] == 1
        assert found["riglm_hit_rate_calls_total{mode=shadow,result=hit}"] == 1
        assert found[f"riglm_calls_total{{found=listed,outcome=success,upstream={found_upstream(found)}}}"] == 2
        await stage.live.put({"filtering": {"meta_tools": {"call_tool": False}}})
        await (await stage.client()).listed()
        assert own < values(stage)["riglm_tokens_meta_tools_total{mode=shadow}"] < 2 * own
        await client.close()
        stage.clients.clear()
        ended = values(stage)
        price = {arm: ended[f"riglm_price_tokens_total{{arm={arm},mode=shadow}}"] for arm in ("riglm", "no_proxy")}
        assert 0 < price["no_proxy"] != price["riglm"] > 0


async def test_records_are_stored_and_all_are_accounted_for(tmp_path):
    async with visibility(tmp_path) as stage:
        client = await stage.client()
        await client.listed()
        await client.call("tool01")
        found = await until(stage, lambda found: found["riglm_records_stored_total"] >= 3)
        assert kept(found)
        assert found["riglm_records_spooled"] == 0


async def test_records_wait_on_disk_while_the_store_is_away(tmp_path):
    in_the_way = tmp_path / "store"
    in_the_way.mkdir()
    storage = json.dumps({"path": str(in_the_way), "spool": {"path": str(tmp_path / "spool")}})
    text = BARE.replace("storage: {{kind: memory}}", f"storage: {storage.replace('{', '{{').replace('}', '}}')}")
    async with visibility(tmp_path, text) as stage:
        client = await stage.client()
        await client.listed()
        for _ in range(5):
            await client.call("tool01")
        found = await until(stage, lambda found: found["riglm_records_spooled"] >= 5)
        assert kept(found)
        assert found["riglm_records_stored_total"] == 0
        assert found["riglm_spool_bytes"] > 0


async def test_a_scrape_never_asks_the_store(tmp_path, monkeypatch):
    async with visibility(tmp_path) as stage:

        def open_store(_: SqlAnalytics) -> None:
            raise AssertionError("the store was asked")

        monkeypatch.setattr(SqlAnalytics, "__enter__", open_store)
        assert values(stage)["riglm_records_accepted_total"] >= 0


async def test_without_the_control_api_nothing_is_counted(tmp_path):
    async with visibility(tmp_path, BARE.replace("  enabled: true\n", "  enabled: false\n", 1)) as stage:
        client = await stage.client()
        await client.listed()
        assert await client.call("tool01") == "tool01"
        assert stage.container.metrics() is None
        assert stage.container.proxy_parts().meter is None
