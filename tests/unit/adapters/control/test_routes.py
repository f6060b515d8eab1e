"""The operations of the control API over HTTP: parameters, bodies, responses and errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from riglm.application.control import statistics
from riglm.domain.errors import ConflictError, ControlUnavailableError, FieldError, InvalidInputError, NotFoundError
from riglm.domain.schemas.control_api import Readiness, Series, ToolDetail
from tests.unit.adapters.control.conftest import DIGEST, Served

SCRIPT = Path(__file__).parents[4] / "docs" / "reference" / "generate_control.py"
WRITTEN_NOON = "2026-05-28T20:26:40.500Z"


@pytest.mark.parametrize("error", [None, ControlUnavailableError("it did not answer in time")])
def test_what_is_not_ready_gives_its_reasons_with_503(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception | None
):
    assert served.ask("GET", "/ready").json == {"ready": True, "reasons": []}

    async def get_readiness(_: object) -> Readiness:
        if error is not None:
            raise error
        return Readiness(ready=False, reasons=("no server",))

    monkeypatch.setattr(statistics, "get_readiness", get_readiness)
    answer = served.ask("GET", "/ready")
    assert (answer.status, answer.json) == (503, {"ready": False, "reasons": [str(error or "no server")]})


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("1780000000.5", WRITTEN_NOON),
        ("1.78e9", "2026-05-28T20:26:40.000Z"),
        ("2026-05-28T20:26:40.5Z", WRITTEN_NOON),
        ("2026-05-28t22:26:40.500%2B02:00", WRITTEN_NOON),
        ("1900-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.000Z"),
        ("0", "1970-01-01T00:00:00.000Z"),
    ],
)
def test_a_time_is_taken_as_rfc_3339_and_as_seconds(served: Served, given: str, written: str):
    assert served.ask("GET", f"/stats/summary?since={given}").json["since"] == written


@pytest.mark.parametrize("given", ["", "yesterday", "-1", "1e300", "nan", "2026-02-30T00:00:00Z", "2026-01-01"])
def test_no_other_text_is_taken_for_a_time(served: Served, given: str):
    answer = served.ask("GET", f"/stats/summary?since={given}")
    assert answer.status == 422
    assert answer.problem["errors"][0]["path"] == "since"


@pytest.mark.parametrize("path", ["/tools/docs/read/stats", "/tools/docs%2Fread/stats", "/tools/stats?name=docs/read"])
def test_a_tool_is_found_by_a_name_with_slashes(served: Served, path: str):
    found = served.ask("GET", path).json
    assert (found["tool"], found["named"], found["cooccurrences"]) == ("docs/read", 1, [])
    assert sum(each["calls"] for each in found["series"]["buckets"]) == 1
    assert served.ask("GET", "/tools?unused=true").json["items"][0]["tool"] == "a"


@pytest.mark.parametrize("name", [".", "..", "a\u202eb", "a\u200db", "a b?&=%", "a\nb", "a" * 600])
def test_a_tool_is_found_by_any_name(served: Served, monkeypatch: pytest.MonkeyPatch, name: str):
    async def get_tool(_: object, name: str, *, since: float) -> ToolDetail:
        return ToolDetail(tool=name, upstream="", last_used=since, cooccurrences=(), series=Series(buckets=()))

    monkeypatch.setattr(statistics, "get_tool", get_tool)
    found = served.ask("GET", f"/tools/stats?name={quote(name, safe='')}&since=10").json
    assert (found["tool"], found["last_used"]) == (name, "1970-01-01T00:00:10.000Z")
    if name.isprintable() and " " not in name and name.strip("."):
        assert served.ask("GET", f"/tools/{quote(name, safe='')}/stats").json["tool"] == name


@pytest.mark.parametrize("query", ["", "name=", "name=a%00b"])
def test_a_tool_without_a_name_is_refused(served: Served, query: str):
    assert [each["path"] for each in served.ask("GET", f"/tools/stats?{query}").problem["errors"]] == ["name"]


def test_a_changed_tool_is_found_and_approved_by_its_digest(served: Served):
    [found] = served.ask("GET", "/tools/changes").json["items"]
    assert (found["server"], found["tool"], found["change"]) == ("files", "read", "changed")
    wanted = {"server": "files", "tool": "read", "digest": DIGEST}
    assert served.ask("POST", "/tools/approve", {**wanted, "digest": "c" * 64}).problem["status"] == 409
    assert served.ask("POST", "/tools/approve", {**wanted, "digest": "short"}).problem["status"] == 422
    assert served.ask("POST", "/tools/approve", wanted).json == {
        **found,
        "change": None,
        "approved_digest": DIGEST,
        "diff": [],
    }


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ({"kind": "pin"}, "tool"),
        ({"kind": "love", "tool": "a"}, "kind"),
        ({"kind": "pin", "tool": "a\u0000"}, "tool"),
        ({"kind": "pin", "tool": "a", "key": "k"}, "key"),
        ({"kind": "pin", "tool": "a", "scope": "session", "key": "no uuid"}, "key"),
        ({"kind": "pin", "tool": "a", "scope": "no_client"}, "scope"),
        ({"kind": "pin", "tool": "a", "expires_in": -1}, "expires_in"),
        ({"kind": "pin", "tool": "a", "expires_in": "60"}, "expires_in"),
        ({"kind": "pin", "tool": "a", "expires_at": 10**30}, "expires_at"),
        ({"kind": "pin", "tool": "a", "reason": "r" * 501}, "reason"),
        ({"kind": "pin", "tool": "a", "more": 1}, "more"),
        (None, "body"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused_with_the_place(served: Served, wanted: object, place: str):
    answer = served.ask("POST", "/override", b"null" if wanted is None else wanted)
    assert answer.status == 422
    assert answer.problem["errors"][0]["path"] == place
    assert not list(served.store.list_overrides())


def test_a_change_that_goes_by_an_old_version_is_refused(served: Served):
    assert served.ask("PUT", "/config", {}, if_match='"7"').problem["status"] == 409
    assert not served.proxy.configuration.changes


@pytest.mark.parametrize("tag", ['"x"', '""', '"3f2a-1"'])
def test_a_change_that_goes_by_a_tag_of_another_resource_is_refused(served: Served, tag: str):
    problem = served.ask("PUT", "/config", {}, if_match=tag).problem
    assert problem["status"] == 412
    assert "— fix: give the ETag of GET /config" in problem["detail"]
    assert not served.proxy.configuration.changes


@pytest.mark.parametrize("tag", ["*", 'W/"1"', None])
def test_a_change_goes_by_any_version_or_by_none(served: Served, tag: str | None):
    assert served.ask("PUT", "/config", {}, if_match=tag).status == 200


@pytest.mark.parametrize("tag", ["1", "", "x", '"x', '"1", "2"'])
def test_what_is_no_version_is_refused(served: Served, tag: str):
    answer = served.ask("PUT", "/config", {}, if_match=tag)
    assert (answer.status, answer.problem["errors"][0]["path"]) == (422, "If-Match")
    assert not served.proxy.configuration.changes


def fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have the summary fail."""

    async def get_summary(*_: Any) -> None:
        raise error

    monkeypatch.setattr(statistics, "get_summary", get_summary)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFoundError("gone"), 404),
        (ConflictError("not now"), 409),
        (ControlUnavailableError("later"), 503),
        (InvalidInputError(FieldError(path="a.b", detail="bad"), FieldError(path="c", detail="worse")), 422),
    ],
)
def test_each_failure_has_its_status(served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int):
    fail(monkeypatch, error)
    answer = served.ask("GET", "/stats/summary")
    problem = answer.problem
    assert (answer.status, "retry-after" in answer.headers) == (status, status == 503)
    assert str(error) in problem["detail"]
    if status == 422:
        assert problem["errors"] == [{"path": "a.b", "detail": "bad"}, {"path": "c", "detail": "worse"}]


def test_a_defect_is_reported_without_its_text_and_logged(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    fail(monkeypatch, RuntimeError("the user's secret"))
    answer = served.ask("GET", "/stats/summary")
    assert answer.problem["status"] == 500
    assert b"secret" not in answer.body
    assert "could not answer" in caplog.text
    assert served.ask("GET", "/health").status == 200


def test_the_reference_of_the_api_is_current():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_operation_declares_what_access_may_answer(served: Served):
    document = served.ask("GET", "/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert {"401", "403", "421", "422"} <= set(operation["responses"]), (method, path)
            assert operation["responses"]["401"]["headers"]["WWW-Authenticate"]["required"]
