"""`riglm top` shows what a control API says."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from riglm.cli import top
from riglm.cli.control import ControlApi
from riglm.cli.main import app
from tests.started import free_port

TOKEN = "read-0123456789abcdef"
WHEN = "2026-11-22T08:00:00.000Z"
NOBODY = {"hits": 0, "searched": 0, "missed": 0, "rate": None}
ANSWERS = {
    "/health": {
        "status": "degraded",
        "version": "0.1.0",
        "started_at": WHEN,
        "upstreams": [
            {"name": "github", "state": "open", "since": WHEN, "last_error": None, "tools": 12},
            {"name": "sl\x1b[31m[/]ack", "state": "broken", "since": WHEN, "last_error": "connection refused",
             "tools": None},
        ],
        "store": {"kind": "sqlite", "state": "ok", "queued": 0, "spooled": 0},
        "embedder": {"embeddings": {"status": "ready"}},
    },
    "/stats/summary": {
        "sessions": {"active": 1, "total": 24},
        "calls": 1234,
        "failures": 5,
        "searches": 7,
        "price": {"mode": "enforce", "sessions": 12, "of_no_proxy": 0.714, "of_host_search": None},
        "hit_rate": {**NOBODY, "rate": 0.854},
        "lists": {"mean_shown": 15.4, "mean_available": None},
        "tokens": {"net": 1_234_567, "hidden": 2_000_000},
        "records": {"stored": 99, "queued": 1, "spooled": 2, "dropped": 4},
        "tools": {"used": 3, "known": 9},
    },
    "/stats/series": {"buckets": [{"calls": 90, "seconds": 60.0}]},
    "/sessions": {
        "items": [
            {"client": {"name": "curs\nor[b]:smile:", "version": "3"}, "started_at": WHEN, "invocations": 6,
             "failures": 1, "lists": 2, "searches": 0}
        ]
    },
    "/tools": {
        "items": [
            {"tool": "read_file", "uses": 4, "invocations": 5, "failures": 1, "median_ms": 12.3, "last_used": WHEN},
            {"tool": "never_used", "uses": 0, "invocations": 0, "failures": 0, "median_ms": None, "last_used": None},
        ]
    },
}  # fmt: skip


class Api(BaseHTTPRequestHandler):
    def do_GET(self):
        is_known = self.headers["Authorization"] == f"Bearer {TOKEN}"
        body = json.dumps(ANSWERS[urlsplit(self.path).path] if is_known else {"detail": "no"}).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    server = HTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def shown(url, monkeypatch):
    """What is shown in a terminal of so many columns."""
    monkeypatch.setenv("RIGLM_CONTROL_TOKEN", TOKEN)

    def shown(columns, *options):
        monkeypatch.setenv("COLUMNS", str(columns))
        result = CliRunner().invoke(app, ["top", "--url", url, *options])
        assert result.exit_code == 0, result.output
        return result.output

    return shown


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_one_frame_says_what_matters_within_the_width(shown, columns):
    said = shown(columns, "--once")
    for words in ("degraded", "1 live of 24", "1,234, 1.5/s", "85.4%", "1,234,567", "3 waiting, 4 dropped", "github",
                  "broken", "connection refused", "read_file", "12 ms"):  # fmt: skip
        assert words in said
    assert "never_used" not in said
    assert max(map(len, said.splitlines())) <= columns


def test_names_that_strangers_chose_move_no_cursor(shown):
    said = shown(100, "--once")
    assert "sl?[31m[/]ack" in said
    assert "curs?or[b]:smile:" in said


def test_json_is_what_the_api_said(shown):
    assert json.loads(shown(80, "--json"))["summary"] == ANSWERS["/stats/summary"]


def test_a_wrong_token_is_told_with_the_way_to_a_right_one(url, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["riglm", "top", "--url", url, "--token", "wrong-0123456789abcdef"])
    with pytest.raises(SystemExit) as end:
        top_main()
    assert end.value.code == 1
    assert "riglm control token" in capsys.readouterr().err


def test_nobody_there_is_told_with_the_way_to_somebody(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["riglm", "top", "--url", f"http://127.0.0.1:{free_port()}", "--token", TOKEN])
    with pytest.raises(SystemExit) as end:
        top_main()
    assert end.value.code == 1
    assert "riglm serve --control" in capsys.readouterr().err


def test_a_connection_that_was_closed_while_it_lay_idle_is_opened_again():
    class Closing(Api):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            super().do_GET()
            self.close_connection = True

    with HTTPServer(("127.0.0.1", 0), Closing) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            api = ControlApi(f"http://127.0.0.1:{server.server_port}", TOKEN)
            assert [api.get("/health")["status"] for _ in range(3)] == ["degraded"] * 3
            api._connection.close()
        finally:
            server.shutdown()


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:8701", "http://", "http://h:port"])
def test_an_address_that_is_none_is_wrong_use(url, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["riglm", "top", "--url", url, "--token", TOKEN])
    with pytest.raises(SystemExit) as end:
        top_main()
    assert end.value.code == 2
    assert "is no address" in capsys.readouterr().err


def test_watching_goes_on_while_riglm_is_away_and_ends_with_ctrl_c(url, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    looks = iter([ANSWERS["/health"], top.ControlApiUnavailableError("no riglm answers"), KeyboardInterrupt()])

    def look(api, hours):
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        return {
            "health": found,
            **{
                name: ANSWERS[path]
                for name, path in (
                    ("summary", "/stats/summary"),
                    ("series", "/stats/series"),
                    ("sessions", "/sessions"),
                    ("tools", "/tools"),
                )
            },
        }

    monkeypatch.setattr(top, "_look", look)
    top.top(url=url, token=TOKEN, hours=1, every=0.001, once=False, config=None, as_json=False)
    assert "no riglm answers" in capsys.readouterr().out


def top_main():
    from riglm.cli.main import main

    main()
