from urllib.parse import quote

import pytest

from riglm.domain.control import (
    ConflictError,
    ControlUnavailableError,
    FieldError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
)
from riglm.domain.policy import OverrideKind, OverrideScope
from tests.unit.adapters.control.conftest import Served
from tests.unit.adapters.control.scripted import NOON, OVERRIDE, SESSION

WRITTEN_NOON = "2026-05-28T20:26:40.500Z"


def test_health_tells_of_servers_store_and_embedder_with_times_in_utc(served: Served):
    found = served.ask("GET", "/health").json
    assert found["started_at"] == WRITTEN_NOON
    (upstream,) = found["upstreams"]
    assert (upstream["state"], upstream["since"], upstream["tools"]) == ("broken", WRITTEN_NOON, None)
    assert found["embedder"]["embeddings"]["dimensions"] == 384


def test_who_is_not_ready_says_why_with_503(served: Served):
    assert (served.ask("GET", "/ready").status, served.ask("GET", "/ready").json) == (
        200,
        {"ready": True, "reasons": []},
    )
    served.inside.is_ready = False
    answer = served.ask("GET", "/ready")
    assert (answer.status, answer.json) == (503, {"ready": False, "reasons": ["the store is away"]})
    served.inside.error = ControlUnavailableError("it did not answer in time")
    answer = served.ask("GET", "/ready")
    assert (answer.status, answer.json) == (503, {"ready": False, "reasons": ["it did not answer in time"]})


def test_metrics_have_the_type_that_their_source_gives(served: Served):
    answer = served.ask("GET", "/metrics")
    assert (answer.body, answer.headers["content-type"]) == (b"up 1\n", "text/plain")


def test_a_session_has_its_calls_and_lists_beside_what_is_listed_of_it(served: Served):
    (listed,) = served.ask("GET", "/sessions").json["items"]
    found = served.ask("GET", f"/sessions/{SESSION}").json
    assert {name: value for name, value in found.items() if name not in {"calls", "shown"}} == listed
    assert found["calls"][0]["error_kind"] == "tool"
    assert found["shown"][0]["hidden"] == 2
    assert listed["client"] == {"name": "editor", "version": "2"}


def test_lists_are_asked_for_as_parameters_say(served: Served):
    served.ask("GET", "/sessions?active=true&limit=7&cursor=abc")
    assert served.inside.asked[-1] == {"active_only": True, "limit": 7, "cursor": "abc"}
    served.ask("GET", "/tools?unused=true")
    assert served.inside.asked[-1] == {"unused_only": True, "since": 0.0, "limit": 100, "cursor": None}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("1780000000.5", NOON),
        ("1.78e9", 1_780_000_000.0),
        ("2026-05-28T20:26:40.5Z", NOON),
        ("2026-05-28t22:26:40.500%2B02:00", NOON),
        ("2016-12-31T23:59:60Z", 1_483_228_800.0),
        ("1900-01-01T00:00:00Z", 0.0),
        ("9999-12-31T23:59:59-23:59", 253_402_300_799.0),
        ("0", 0.0),
    ],
)
def test_a_time_is_taken_as_rfc_3339_and_as_seconds(served: Served, given: str, seconds: float):
    assert served.ask("GET", f"/stats/summary?since={given}").status == 200
    assert served.inside.asked[-1] == {"since": seconds}


@pytest.mark.parametrize(
    "given", ["", "yesterday", "-1", "1e300", "nan", "2026-02-30T00:00:00Z", "2026-01-01", "20260101T000000Z"]
)
def test_no_other_text_is_taken_for_a_time(served: Served, given: str):
    answer = served.ask("GET", f"/stats/summary?since={given}")
    assert answer.status == 422
    assert answer.problem["errors"][0]["path"] == "since"


def test_a_tool_is_found_by_a_name_with_slashes(served: Served):
    for path in ("/tools/docs/read/stats", "/tools/docs%2Fread/stats"):
        found = served.ask("GET", path).json
        assert found["tool"] == "docs/read"
        assert found["series"]["buckets"][0]["calls"] == 2
        assert found["cooccurrences"] == [{"tool": "docs/list", "count": 2, "mean_distance": 1.5}]


def test_kinds_of_work_have_their_tools_and_their_order(served: Served):
    found = served.ask("GET", "/stats/clusters?limit=5").json
    assert served.inside.asked[-1] == {"limit": 5}
    assert (found["sessions"], found["total"]) == (4, 2)
    assert found["clusters"] == [
        {
            "sessions": 3,
            "distinctive": ["docs/read"],
            "tools": [{"tool": "docs/read", "sessions": 3}],
            "transitions": [{"first": "docs/list", "second": "docs/read", "sessions": 2}],
            "pairs": [{"first": "docs/list", "second": "docs/read", "sessions": 2}],
        }
    ]


@pytest.mark.parametrize("name", [".", "..", "a\u202eb", "a\u200db", "docs/read", "a b?&=%", "a\nb", "a" * 600])
def test_a_tool_is_found_by_a_name_that_no_path_can_have(served: Served, name: str):
    served.ask("GET", f"/tools/stats?name={quote(name, safe='')}&since=10")
    assert served.inside.asked[-1] == {"name": name, "since": 10.0}


@pytest.mark.parametrize("name", ["a\u202eb", "a\u200db"])
def test_signs_that_cannot_be_seen_may_stand_in_the_path_of_a_tool(served: Served, name: str):
    served.ask("GET", f"/tools/{quote(name, safe='')}/stats")
    assert served.inside.asked[-1]["name"] == name


@pytest.mark.parametrize("query", ["", "name=", "name=a%00b"])
def test_a_tool_without_a_name_is_refused(served: Served, query: str):
    assert [each["path"] for each in served.ask("GET", f"/tools/stats?{query}").problem["errors"]] == ["name"]


def test_what_is_computed_of_totals_is_told_too(served: Served):
    found = served.ask("GET", "/stats/summary").json
    assert (found["hit_rate"]["rate"], found["lists"]["reduction"], found["tokens"]["net"]) == (0.75, 0.75, 50)
    assert found["price"] == {"mode": "enforce", "sessions": 2, "of_no_proxy": 0.71, "of_host_search": 0.93}


def test_a_series_is_asked_for_as_parameters_say(served: Served):
    assert (
        len(
            served.ask("GET", "/stats/series?since=10&until=1970-01-01T00:00:20Z&buckets=3&sessions_since=5").json[
                "buckets"
            ]
        )
        == 1
    )
    assert served.inside.asked[-1] == {"since": 10.0, "until": 20.0, "buckets": 3, "sessions_since": 5.0}


def test_a_prediction_tells_each_tool_and_the_list_without_each_signal(served: Served):
    found = served.ask("GET", f"/predictions/{SESSION}").json
    assert found["tools"][0]["contributions"] == {"frequency": 0.5}
    assert found["without"] == {"frequency": {"shown": [], "added": [], "removed": ["docs/read"]}}


def test_an_override_is_made_found_and_removed(served: Served):
    made = served.ask("POST", "/override", {"kind": "pin", "tool": "docs/read", "expires_in": 60})
    assert (made.status, made.headers["location"]) == (201, f"/override/{OVERRIDE}")
    override_request = served.inside.asked[-1]["override_request"]
    assert (override_request.kind, override_request.scope, override_request.key, override_request.expires_in) == (
        OverrideKind.PIN,
        OverrideScope.ALL,
        "",
        60.0,
    )
    assert served.ask("GET", made.headers["location"]).json == made.json
    assert served.ask("GET", "/override").json == {"items": [made.json], "next_cursor": None}
    gone = served.ask("DELETE", made.headers["location"])
    assert (gone.status, gone.body) == (204, b"")
    assert served.ask("DELETE", made.headers["location"]).problem["status"] == 404
    assert served.ask("GET", made.headers["location"]).status == 404


def test_a_changed_tool_is_found_and_approved_by_its_digest(served: Served):
    [found] = served.ask("GET", "/tools/changes").json["items"]
    assert (found["server"], found["tool"], found["change"]) == ("files", "read", "changed")
    assert found["diff"] == ["-old", "+new"]
    wanted = {"server": "files", "tool": "read", "digest": found["digest"]}
    assert served.ask("POST", "/tools/approve", wanted).json == found
    assert served.ask("POST", "/tools/approve", {**wanted, "digest": "c" * 64}).problem["status"] == 409
    assert served.ask("POST", "/tools/approve", {**wanted, "digest": "short"}).problem["status"] == 422


@pytest.mark.parametrize(
    ("override_request", "place"),
    [
        ({"kind": "pin"}, "tool"),
        ({"kind": "love", "tool": "a"}, "kind"),
        ({"kind": "pin", "tool": ""}, "tool"),
        ({"kind": "pin", "tool": "a\u0000"}, "tool"),
        ({"kind": "pin", "tool": "a" * 257}, "tool"),
        ({"kind": "pin", "tool": "a", "key": "k"}, "key"),
        ({"kind": "pin", "tool": "a", "scope": "session", "key": "no uuid"}, "key"),
        ({"kind": "pin", "tool": "a", "scope": "session"}, "key"),
        ({"kind": "pin", "tool": "a", "scope": "no_client"}, "body"),
        ({"kind": "pin", "tool": "a", "scope": {}}, "body"),
        ({"kind": "pin", "tool": "a", "expires_in": -1}, "expires_in"),
        ({"kind": "pin", "tool": "a", "expires_in": "60"}, "expires_in"),
        ({"kind": "pin", "tool": "a", "expires_at": "12"}, "expires_at"),
        ({"kind": "pin", "tool": "a", "expires_at": True}, "expires_at"),
        ({"kind": "pin", "tool": "a", "expires_at": 10**30}, "expires_at"),
        ({"kind": "pin", "tool": "a", "reason": "r" * 501}, "reason"),
        ({"kind": "pin", "tool": "a", "more": 1}, "more"),
        ({"kind": "pin", "tool": "a", "scope": "principal", "key": "", "all": 1}, "all"),
        ([], "body"),
        (None, "body"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused_with_the_place(
    served: Served, override_request: object, place: str
):
    answer = served.ask("POST", "/override", b"null" if override_request is None else override_request)
    assert answer.status == 422
    assert answer.problem["errors"][0]["path"] == place
    assert not served.inside.made


def test_the_configuration_is_shown_with_its_version_and_changed(served: Served):
    shown = served.ask("GET", "/config")
    assert (shown.headers["etag"], shown.json) == ('"1"', served.inside.document)
    changed = served.ask("PUT", "/config?persist=true", {"filtering": {"max_tools": 9}}, if_match='"1"')
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    assert changed.headers["riglm-restart-needed"] == "storage.path"
    assert changed.json["filtering"] == {"max_tools": 9}
    assert served.inside.put == [({"filtering": {"max_tools": 9}}, 1, True)]


@pytest.mark.parametrize("tag", ['"7"', '"7", "8"'])
def test_a_change_that_goes_by_an_old_version_is_refused(served: Served, tag: str):
    assert served.ask("PUT", "/config", {}, if_match=tag).problem["status"] == 409
    assert not served.inside.put


@pytest.mark.parametrize("tag", ['"x"', '""', 'W/"1"', '"1x", W/"1"', '"3f2a-1"'])
def test_a_change_that_goes_by_a_tag_of_another_resource_is_refused(served: Served, tag: str):
    problem = served.ask("PUT", "/config", {}, if_match=tag).problem
    assert problem["status"] == 412
    assert "— fix: give the ETag of GET /config" in problem["detail"]
    assert not served.inside.put


@pytest.mark.parametrize("tag", ["*", '"3", "1"', '"x", "1"', None])
def test_a_change_goes_by_any_version_by_one_of_several_or_by_none(served: Served, tag: str | None):
    assert served.ask("PUT", "/config", {}, if_match=tag).status == 200


@pytest.mark.parametrize("tag", ["1", "", "x", '"x', '"1" "2"'])
def test_what_is_no_version_is_refused(served: Served, tag: str):
    answer = served.ask("PUT", "/config", {}, if_match=tag)
    assert (answer.status, answer.problem["errors"][0]["path"]) == (422, "If-Match")
    assert not served.inside.put


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFoundError("gone"), 404),
        (ForbiddenError("never"), 403),
        (ConflictError("not now"), 409),
        (ControlUnavailableError("later"), 503),
        (InvalidInputError(FieldError(path="a.b", detail="bad"), FieldError(path="c", detail="worse")), 422),
    ],
)
def test_each_failure_has_its_status(served: Served, error: Exception, status: int):
    served.inside.error = error
    answer = served.ask("GET", "/stats/summary")
    assert answer.status == status
    problem = answer.problem
    assert str(error) in problem["detail"]
    assert ("retry-after" in answer.headers) == (status == 503)
    if status == 422:
        assert problem["errors"] == [{"path": "a.b", "detail": "bad"}, {"path": "c", "detail": "worse"}]


def test_a_page_that_is_not_there_is_not_found(served: Served):
    assert served.ask("GET", "/sessions?cursor=nowhere").problem["status"] == 404


def test_what_breaks_is_told_without_its_words_and_logged(served: Served, caplog: pytest.LogCaptureFixture):
    served.inside.error = RuntimeError("the user's secret")
    answer = served.ask("GET", "/health")
    assert answer.problem["status"] == 500
    assert b"secret" not in answer.body
    assert "could not answer" in caplog.text
    served.inside.error = None
    assert served.ask("GET", "/health").status == 200
