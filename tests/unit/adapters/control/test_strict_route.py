from http import HTTPMethod

import pytest

from riglm.adapters.control import routes
from riglm.adapters.control.server import MAX_HEAD_BYTES
from tests.unit.adapters.control.conftest import OVERRIDE, SESSION, Served

READABLE = [
    "/health",
    "/ready",
    "/metrics",
    "/config",
    "/sessions",
    f"/sessions/{SESSION}",
    "/override",
    "/",
    "/openapi.json",
]


@pytest.mark.parametrize("path", ["/nowhere", "/health/", "/Health", "/%2e%2e/etc/passwd", "/%00", "/docs"])
def test_where_nothing_is_nothing_is_found(served: Served, path: str):
    for method in ("GET", "PUT", "HEAD"):
        answer = served.ask(method, path)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/health", "GET, HEAD"),
        ("/config", "GET, HEAD, PUT"),
        ("/override", "GET, HEAD, POST"),
        (f"/override/{OVERRIDE}", "DELETE, GET, HEAD"),
        ("/", "GET, HEAD"),
        ("/assets/x", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(served: Served, path: str, allowed: str):
    for method in {*HTTPMethod, "BREW"} - {"CONNECT", *allowed.split(", ")}:
        answer = served.ask(method, path)
        assert (answer.status, answer.headers["allow"]) == (405, allowed)
        assert answer.problem


@pytest.mark.parametrize("path", READABLE)
def test_head_is_answered_as_get_without_the_body(served: Served, path: str):
    full, head = served.ask("GET", path), served.ask("HEAD", path)
    assert (head.status, head.body) == (full.status, b"")
    for name in ("content-type", "content-length", "etag"):
        assert head.headers.get(name) == full.headers.get(name)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/config"), ("POST", "/override")])
def test_a_body_that_is_not_declared_as_json_is_not_read(served: Served, method: str, path: str):
    for content_type in (None, "", "text/plain", "application/x-www-form-urlencoded", "json", "application/jsonx"):
        assert served.ask(method, path, b"{}", content_type=content_type).problem["status"] == 415
    assert not served.proxy.configuration.changes


NO_JSON = [
    *[b"", b"{", b"{]", b"nul", b"\xff\xfe", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b"{} {}"],
    *[b'{"a": "\\ud800"}', b'{"\\udfff": 1}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\x00"}', b"\xef\xbb\xbf{}"],
    *[b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 20_000 + b"1" + b"}" * 20_000],
]


@pytest.mark.parametrize(("method", "path"), [("PUT", "/config"), ("POST", "/override")])
def test_what_is_no_json_is_refused(served: Served, method: str, path: str):
    for body in NO_JSON:
        answer = served.ask(method, path, body)
        assert answer.status in {400, 422}, body[:20]
        assert answer.problem
    assert not served.proxy.configuration.changes


def test_a_body_that_is_too_large_is_refused(served: Served):
    body = b'{"a": "' + b"x" * routes.MAX_BODY_BYTES + b'"}'
    answer = served.ask("PUT", "/config", body)
    assert answer.problem["status"] == 413
    assert served.ask("PUT", "/config", b'{"a": "' + b"x" * (routes.MAX_BODY_BYTES - 100) + b'"}').status == 200


def test_a_body_that_does_not_come_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routes, "BODY_SECONDS", 0.05)
    head = f"PUT /config HTTP/1.1\r\nHost: {served.host}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    assert b" 408 " in served.raw(head.encode() + b"{").split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=abc", "limit"),
        ("limit=", "limit"),
        ("limit=1e3000", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("limit=%00", "limit"),
        ("cursor=", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=%ED%A0%80", "cursor"),
        ("cursor=" + "a" * 513, "cursor"),
        ("active=yes", "active"),
        ("active=%F0%9F%98%80", "active"),
        ("limt=5", "limt"),
        ("limit=5&limit=6", "limit"),
    ],
)
def test_a_parameter_that_cannot_be_meant_is_refused_with_its_name(served: Served, query: str, place: str):
    answer = served.ask("GET", f"/sessions?{query}")
    assert answer.status == 422
    assert [each["path"] for each in answer.problem["errors"]] == [place]


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "%ED%A0%80", "a" * 20_000, "%F0%9F%98%80", "a%20b", "..%2F.."])
def test_a_tool_of_a_strange_name_is_just_not_there(served: Served, name: str):
    assert served.ask("GET", f"/tools/{name}/stats").problem["status"] == 404


def test_a_head_that_is_too_long_is_not_read_to_its_end(served: Served):
    head = b"GET /health?" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n"
    assert served.raw(head).split(b" ")[1] == b"400"
    assert served.ask("GET", "/health").status == 200
