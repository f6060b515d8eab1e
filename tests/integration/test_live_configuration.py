"""The configuration changes while clients list and call."""

import asyncio
import random

import pytest

from riglm.application.control.running_proxy import ProxyLoop
from riglm.domain import jsonrpc
from riglm.domain.errors import ConflictError, InvalidInputError
from riglm.domain.redaction import MASK
from tests.integration.live import FILE, PATIENCE, TOOLS, visibility
from tests.waiting import wait_until_async

OFF = FILE.replace("filtering:      # what is shown\n", "filtering:\n    enabled: false\n")


def of_servers(names):
    return [name for name in names if name in TOOLS]


async def test_a_deny_list_counts_for_lists_and_calls_and_clients_are_told(tmp_path):
    async with visibility(tmp_path) as stage:
        client = await stage.client()
        assert "tool05" in await client.listed()
        await stage.live.put({"filtering": {"denylist": ["tool05", "tool39"]}})
        async with asyncio.timeout(PATIENCE):
            await client.told.changed.wait()
        assert "tool05" not in await client.listed()
        assert await client.call("tool05") is None
        assert await client.call("tool06") == "tool06"


async def test_the_filter_is_switched_off_and_on_while_a_client_is_connected(tmp_path):
    async with visibility(tmp_path) as stage:
        client = await stage.client()
        assert of_servers(await client.listed()) == list(TOOLS[:-1])
        await stage.live.put({"filtering": {"enabled": False}})
        async with asyncio.timeout(PATIENCE):
            await client.told.changed.wait()
        assert await client.listed() == list(TOOLS)
        assert await client.call("tool39") == "tool39"
        client.told.changed.clear()
        await stage.live.put({"filtering": {"enabled": True}})
        async with asyncio.timeout(PATIENCE):
            await client.told.changed.wait()
        assert of_servers(await client.listed()) == list(TOOLS[:-1])
        assert await client.call("tool39") is None


async def test_a_list_that_is_in_flight_when_the_filter_is_switched_on_is_filtered(tmp_path):
    async with visibility(tmp_path, OFF) as stage:
        client = await stage.client()
        stage.upstream.list_may_come.clear()
        waiting = client.send("tools/list")
        async with asyncio.timeout(PATIENCE):
            await stage.upstream.list_was_asked.wait()
            await stage.live.put({"filtering": {"enabled": True}})
            stage.upstream.list_may_come.set()
            listed = await waiting
        assert b"tool38" in bytes(listed.result)
        assert b"tool39" not in bytes(listed.result)


async def test_a_call_that_runs_ends_as_it_began(tmp_path):
    async with visibility(tmp_path) as stage:
        client = await stage.client()
        waiting = client.send("tools/call", {"name": "tool00", "arguments": {}})
        async with asyncio.timeout(PATIENCE):
            await stage.upstream.slow_has_begun.wait()
            await stage.live.put({"filtering": {"denylist": ["tool00"]}})
            stage.upstream.go_on.set()
            assert (await waiting).result
        assert await client.call("tool00") is None


async def test_what_bounds_an_answer_of_the_inner_voice_counts_for_the_next_question(tmp_path):
    async with visibility(tmp_path, FILE + "knowledge: {{enabled: true}}\n") as stage:
        client = await stage.client()
        asked = {"name": "inner_voice.retrieve", "arguments": {"query": "falcon"}}

        async def diagnostics():
            answer = jsonrpc.plain((await client.send("tools/call", asked)).result)
            return answer["structuredContent"]["diagnostics"]

        assert (await diagnostics())["k_req"] == 10
        await stage.live.put({"knowledge": {"top_k": 3, "min_floor": 0.05, "floor": 0.05, "mix": 0.1}})
        said = await diagnostics()
        assert (said["k_req"], said["floor_used"]) == (3, 0.05)
        for late in ({"alias": "snippets"}, {"shared": True}, {"enabled": False}):
            with pytest.raises(InvalidInputError, match="start"):
                await stage.live.put({"knowledge": late})


async def test_hundreds_of_changes_under_calls_fail_none_and_show_no_mixture(tmp_path):
    configurations = [
        {
            "filtering": {
                "enabled": place % 7 != 6,
                "mode": "shadow" if place % 5 == 4 else "enforce",
                "denylist": [f"tool{place:02}", f"tool{place + 10:02}", f"tool{place + 20:02}"],
                "meta_tools": {"mark_tool": place % 2 == 0, "index_status": place % 3 == 0},
            },
            "predictor": {"kind": "frequency" if place == 99 else "hybrid"},
            "logging": {"include_arguments": place % 2 == 0},
        }
        for place in range(1, 10)
    ]
    async with visibility(tmp_path) as stage:
        await stage.live.put(configurations[0])
        stage.upstream.go_on.set()
        caller, lister = await stage.client(), await stage.client()
        await lister.listed()  # what its lists are made from is read before the first call is recorded
        lists, calls = [], []
        chance, version = random.Random(5), stage.live.shown().version
        first = version
        seldom = [5] * 8 + [1]  # another predictor learns from the record first, which takes its time
        for place, wanted in enumerate(chance.choices(configurations, seldom, k=200)):
            if place % 5 == 0:
                calls.append(asyncio.create_task(caller.call("tool30")))
                lists.append(asyncio.create_task(lister.listed()))
            changed = await stage.live.put(wanted, expected_version=version)
            version = changed.version
        assert version > first + 160
        assert set(await asyncio.gather(*calls)) == {"tool30"}
        seen = {frozenset(names) for names in await asyncio.gather(*lists)}
        assert seen <= {_list_by(each["filtering"]) for each in configurations}
        assert len(seen) > 3


def _list_by(rules):
    """What a session of which nothing is known is shown."""
    if not rules["enabled"]:
        return frozenset(TOOLS)
    own = {name for name in ("mark_tool", "index_status") if rules["meta_tools"][name]}
    own |= {"set_context", "search_available_tools", "call_tool"}
    return frozenset({*TOOLS} - {*rules["denylist"]} | (own if rules["mode"] == "enforce" else set()))


BAD = [
    {"filtering": {"max_tools": 0}},
    {"filtering": {"max_tools": 1, "min_tools": 2}},
    {"filtering": {"max_tool": 3}},
    {"filtering": 5},
    {"filtering": {"allowlist": ["tool39"], "strategy": "allowlist"}},
    {"filtering": {"strategy": "allowlist"}},
    {"predictor": {"kind": "hybird"}},
    {"predictor": {"kind": "frequency", "options": {"nonsense": 1}}},
    {"logging": {"include_results": True}, "filtering": {"max_tools": 9}},
    {"downstream": {"port": 9}},
    {"filtering": {"max_tools": 9}, "limits": {"message_bytes": 70_000}},
    {"nothing": {}, "retention": {"session_days": 1}},
    {"control": {"port": 1}},
    {"upstream": {"url": "http://elsewhere/mcp"}},
    {"mcp_servers": {"more": {"command": "sh"}}, "upstream": None},
    {"upstream": {"headers": {"A": "b"}}, "filtering": {"max_tools": 9}},
]


async def test_a_bad_document_changes_nothing(tmp_path):
    async with visibility(tmp_path) as stage:
        before, content, parts = stage.live.shown(), stage.file.read_bytes(), _in_force(stage)
        for document in BAD:
            with pytest.raises(InvalidInputError) as refused:
                await stage.live.put(document)
            assert all(fault.detail for fault in refused.value.faults), document
            assert stage.live.shown() == before, document
            assert _in_force(stage) == parts, document
        assert stage.file.read_bytes() == content
        assert [file.name for file in tmp_path.iterdir()] == ["riglm.yaml"]


def _in_force(stage):
    filtering, tracking = stage.container.filtering(), stage.container.tracking()
    return filtering.rules, filtering._now, tracking._hides_arguments, stage.container.prediction()._loading.settings


async def test_a_version_that_is_no_more_is_refused(tmp_path):
    async with visibility(tmp_path) as stage:
        version = stage.live.shown().version
        await stage.live.put({"filtering": {"max_tools": 8}}, expected_version=version)
        with pytest.raises(ConflictError, match=f"version {version + 1}, not {version}"):
            await stage.live.put({"filtering": {"max_tools": 9}}, expected_version=version)
        assert stage.live.settings.filtering.max_tools == 8


async def test_a_change_counts_in_every_process_and_at_the_next_start_until_it_is_reset(tmp_path):
    text = FILE.replace("storage: {{kind: memory}}", f"storage: {{{{path: {tmp_path / 'riglm.db'}}}}}")
    async with visibility(tmp_path, text) as stage, visibility(tmp_path, text) as other:
        content = stage.file.read_bytes()
        client = await other.client()
        assert "tool05" in await client.listed()
        await stage.live.put({"filtering": {"denylist": ["tool05"]}})
        await wait_until_async(lambda: other.live.settings.filtering.denylist == ("tool05",))
        assert "tool05" not in await client.listed()
        assert stage.file.read_bytes() == content
    async with visibility(tmp_path, text) as stage:
        assert "tool05" not in await (await stage.client()).listed()
        with stage.container.analytics() as store:
            store.delete_setting_changes(["filtering.denylist"])
        await wait_until_async(lambda: stage.live.settings.filtering.denylist == ("tool39",))


async def test_two_changes_at_once_are_made_one_after_the_other(tmp_path):
    async with visibility(tmp_path) as stage:
        before = stage.live.shown().version
        puts = [stage.live.put({"filtering": {"max_tools": 10 + place}}) for place in range(10)]
        changes = await asyncio.gather(*puts)
        assert sorted(change.version for change in changes) == list(range(before + 1, before + 11))


async def test_nobody_waiting_any_more_leaves_no_half_change(tmp_path):
    async with visibility(tmp_path) as stage:
        loop = ProxyLoop(asyncio.get_running_loop())
        put = asyncio.create_task(loop.ask(lambda: stage.live.put({"filtering": {"max_tools": 9}})))
        await asyncio.sleep(0)
        put.cancel()
        await asyncio.gather(put, return_exceptions=True)
        await stage.live.put({"filtering": {"answer_tools": 4}})  # is made after the first
        assert stage.live.settings.filtering.max_tools == 9


async def test_a_refusal_shows_no_secret(tmp_path):
    text = FILE + "predictor: {{kind: frequency, options: {{}}}}\ndownstream: {{token: canary-0123456789abcdef}}\n"
    async with visibility(tmp_path, text) as stage:
        assert stage.live.shown().document["downstream"]["token"] == MASK
        with pytest.raises(InvalidInputError) as refused:
            await stage.live.put({"predictor": {"options": {"api_key": "canary-of-options"}}})
        assert "canary" not in str(refused.value)
        with pytest.raises(InvalidInputError, match="mask"):
            await stage.live.put({"downstream": {"token": "***!"}})
