"""The report, `riglm stats`, the dashboard's control API and the metrics show the same figures of the same store."""

import asyncio
import json
from uuid import UUID

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.telemetry.metrics import PrometheusMetrics
from riglm.application.control.statistics import get_series, get_summary, get_tool, list_tools
from riglm.cli.main import app
from riglm.domain.exposure import SEARCH_SURFACE, Exposure
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.session import IdentificationMethod, Session
from tests.records import a_session, an_exposure, an_invocation
from tests.unit.application.control.parts import make_running_proxy

TOOLS = tuple("abcdefgh")


def sessions_of(mode, surface):
    """Sessions of which some search, change their list, fail, call unknown names or nothing, or have no list."""
    records = []
    for number in range(24):
        session = a_session(started_at=1_000.0 + 100 * number, tools_available=TOOLS)
        at, short = session.started_at, {"mode": mode, "surface": surface}
        tokens = {"tokens_shown": 350, "tokens_hidden": 9_000, "tokens_own": 50 if surface == "dynamic" else 0}
        records += [session, an_exposure(session, "a", "b", hidden=TOOLS[2:], timestamp=at, **short, **tokens)]
        listed = {"found": DiscoveryMethod.LISTED}
        records += [an_invocation(session, "a", timestamp=at + step, **listed) for step in range(1, 5)]
        if number % 3 == 0:
            is_searched = mode == "enforce" and surface == "dynamic"
            found = DiscoveryMethod.SEARCHED if is_searched else DiscoveryMethod.LISTED
            searched = {"mode": mode, "surface": SEARCH_SURFACE, "tokens_shown": 30}
            records.append(an_exposure(session, "c", timestamp=at + 6, **searched))
            own = {"upstream": OWN_UPSTREAM, "timestamp": at + 6}
            records.append(an_invocation(session, "search_available_tools", **own))
            records.append(an_invocation(session, "c", timestamp=at + 7, found=found))
        if number % 4 == 0:
            records.append(an_exposure(session, "a", hidden=TOOLS[1:], timestamp=at + 8, **short, **tokens))
            failed = {"success": False, "error_kind": ErrorKind.TIMEOUT}
            records.append(an_invocation(session, "a", timestamp=at + 9, **listed, **failed))
    for upstream in ("github", ""):  # refused by the server, or by riglm
        refused = {"success": False, "error_kind": ErrorKind.PROTOCOL, "upstream": upstream}
        records.append(an_invocation(session, "unknown", timestamp=at + 10, **refused))
    idle, unlisted = a_session(started_at=9_000.0), a_session(started_at=9_100.0)
    shown = {"mode": mode, "surface": surface, "tokens_shown": 300, "tokens_hidden": 9_000}
    records += [idle, an_exposure(idle, "a", "b", hidden=TOOLS[2:], timestamp=9_000.0, **shown)]
    return [*records, unlisted, an_invocation(unlisted, "a", timestamp=9_101.0)]


def imported():
    session = a_session(started_at=9_200.0, method=IdentificationMethod.TRANSCRIPT)
    tools = ("a", "imported", "imported")
    return [session, *(an_invocation(session, tool, timestamp=9_201.0, duration_ms=9e6) for tool in tools)]


def measured(records):
    """The metrics of a process that recorded these, with the list that each session had at a call."""
    metrics = PrometheusMetrics(["github"], lambda: "1")
    shown: dict[UUID, Exposure] = {}
    for record in records:
        if isinstance(record, Session):
            metrics.session_opened(record)
        elif isinstance(record, Exposure):
            before = shown.get(record.session_id)
            metrics.exposed(record, changed=record.is_list and before is not None and before.shown != record.shown)
            shown = {**shown, record.session_id: record} if record.is_list else shown
        elif isinstance(record, ToolInvocation):
            listed = shown.get(record.session_id)
            metrics.called(
                record.session_id,
                record.tool,
                record.upstream,
                record.found,
                record.error_kind,
                record.duration_ms,
                "off" if listed is None else listed.mode,
                None if listed is None or record.tool not in listed.available else record.tool in listed.shown,
            )
    for record in records:
        if isinstance(record, Session):
            metrics.session_closed(record.id, ended=True)
    lines = [line for line in metrics.scrape()[0].decode().splitlines() if not line.startswith("#")]
    return {name: float(number) for name, _, number in (line.rpartition(" ") for line in lines)}


def of_metrics(found, mode):
    of_any = {name: number for name, number in found.items() if name.startswith("riglm_calls_total{")}
    calls = {name: number for name, number in of_any.items() if f'upstream="{OWN_UPSTREAM}"' not in name}
    tokens = {name: found[f'riglm_tokens_{name}_total{{mode="{mode}"}}'] for name in ("hidden", "meta_tools", "resent")}
    riglm, other = (found[f'riglm_price_tokens_total{{arm="{arm}",mode="{mode}"}}'] for arm in ("riglm", "no_proxy"))
    return {
        "sessions": sum(number for name, number in found.items() if name.startswith("riglm_sessions_total")),
        "calls": sum(calls.values()),
        "failures": sum(number for name, number in calls.items() if 'outcome="success"' not in name),
        "found_by_search": sum(number for name, number in calls.items() if 'found="searched"' in name),
        "hits": found[f'riglm_hit_rate_calls_total{{mode="{mode}",result="hit"}}'],
        "missed": found[f'riglm_hit_rate_calls_total{{mode="{mode}",result="missed"}}'],
        "lists": found[f'riglm_list_shown_tools_count{{mode="{mode}"}}'],
        "changes": found[f'riglm_list_changes_total{{mode="{mode}"}}'],
        "searches": found["riglm_searches_total"],
        **tokens,
        "net": found[f'riglm_tokens_net{{mode="{mode}"}}'],
        "price": round(riglm / other, 3),
    }


def of_report(found, mode):
    lists = found["record"][mode]
    return {
        "sessions": found["sessions"],
        "calls": found["calls"],
        "failures": found["failed_calls"],
        "found_by_search": lists["found_by_search"],
        "hits": lists["hits"],
        "missed": lists["missed"],
        **{name: lists[name] for name in ("lists", "changes", "searches")},
        **{name: lists[f"tokens_{name}"] for name in ("hidden", "meta_tools", "resent", "net")},
        "price": lists["cost"]["price"],
    }


def of_stats(found, mode):
    [lists] = [row for row in found["exposures"] if row["mode"] == mode]
    return {
        "sessions": found["sessions"],
        "calls": found["calls"],
        "failures": found["failed_calls"],
        "found_by_search": found["calls_found_by_search"],
        **{name: lists[name] for name in ("lists", "changes", "searches")},
        **{name: lists[f"tokens_{name}"] for name in ("hidden", "meta_tools", "resent", "net")},
        "price": lists["priced"]["price"],
    }


def of_summary(found):
    tokens = found.tokens
    return {
        "sessions": found.sessions.total,
        "calls": found.calls,
        "failures": found.failures,
        **{name: getattr(found.hit_rate, name) for name in ("found_by_search", "hits", "missed")},
        "lists": found.lists.shown,
        "changes": found.lists.changes,
        "searches": found.searches,
        **{name: getattr(tokens, name) for name in ("hidden", "meta_tools", "resent", "net")},
        "price": found.price.of_no_proxy,
    }


def told_by(words):
    return json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)


@pytest.mark.parametrize(("mode", "surface"), [("shadow", "dynamic"), ("enforce", "dynamic"), ("enforce", "hints")])
async def test_every_surface_shows_the_same_figures_of_one_store(tmp_path, monkeypatch, mode, surface):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    url, records = f"sqlite:///{tmp_path / 'riglm.db'}", sessions_of(mode, surface)
    with SqlAnalytics(url) as store:
        store.record_many([*records, *imported()])
    commands = (["stats"], ["tools"], ["sessions"], ["report", "--predictor", "frequency"])
    told = {words[0]: await asyncio.to_thread(told_by, words) for words in commands}
    summary, series, tools, tool = await asked(url)
    report, stats = of_report(told["report"], mode), of_stats(told["stats"], mode)
    assert report == of_summary(summary) == of_metrics(measured(records), mode)
    assert stats == {name: report[name] for name in stats}
    assert (report["sessions"], report["calls"], report["failures"]) == (26, 24 * 4 + 8 + 6 + 1 + 2, 8)
    assert (report["hits"], report["missed"]) == (24 * 4, 8)
    assert report["found_by_search"] == (8 if (mode, surface) == ("enforce", "dynamic") else 0)
    assert (summary.mode, summary.price.mode, summary.tokens.mode) == (mode, mode, mode)
    assert report["price"] < 1
    assert (report["net"] > 0) is (surface == "dynamic")  # a client that defers tools hides them without riglm too
    assert summary.verdict.model_dump(mode="json") == told["report"]["verdict"]
    assert summary.verdict.code == "worth_it"
    assert round(100 * summary.hit_rate.rate, 1) == told["stats"]["hit_rate_percent"]
    assert round(100 * summary.hit_rate.rate, 2) == told["report"]["record"][mode]["hit_rate"]
    assert summary.tools.never_used == len(told["report"]["tools"]["never_used"])
    assert (summary.tools.known, summary.tools.used) == (told["stats"]["tools_seen"], told["stats"]["tools_used"])
    of_series = {name: sum(getattr(each, name) for each in series) for name in ("calls", "failures", "lists")}
    assert of_series == {name: report[name] for name in of_series}
    assert sum(each.listed + each.searched + each.named for each in series) == report["calls"]
    assert sum(each.searched for each in series) == report["found_by_search"]
    for mean in ("mean_shown", "mean_available"):
        total = sum(getattr(each, mean) * each.lists for each in series if each.lists)
        assert total / summary.lists.shown == pytest.approx(getattr(summary.lists, mean)), mean
    names = ("tool", "upstream", "invocations", "uses", "failures", "sessions", "listed", "searched", "median_ms")
    rows = [{name: row[name] for name in names} for row in told["tools"]]
    assert rows == [each.model_dump(include=set(names)) for each in tools]
    assert [row["tool"] for row in rows] == ["a", "c", "b", *"defgh"]
    assert len(rows) == summary.tools.known
    assert sum(row["uses"] > 0 for row in rows) == summary.tools.used
    assert sum(row["invocations"] for row in rows) == report["calls"] - 2  # unknown names are no tools
    assert (tool.invocations, tool.searched) == (rows[0]["invocations"], rows[0]["searched"])
    assert sum(each.calls for each in tool.series.buckets) == tool.invocations
    recorded = sum(session["invocations"] for session in told["sessions"])
    assert recorded == report["calls"] + told["stats"]["meta_tool_calls"] + 3  # all sessions, also the imported one


async def asked(url):
    """What the control API answers, and the dashboard shows: summary, series, tools, and one tool."""
    proxy = make_running_proxy(SqlAnalytics(url))
    try:
        return (
            await get_summary(proxy),
            (await get_series(proxy, since=0.0, until=20_000.0)).buckets,
            (await list_tools(proxy, limit=1_000)).items,
            await get_tool(proxy, "a"),
        )
    finally:
        proxy.close()
