"""Logs."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from select import select

import pytest

from riglm.adapters.telemetry import logs
from riglm.adapters.telemetry.logs import JsonLogs
from tests.waiting import WAIT_SECONDS

logger = logging.getLogger("riglm.test")


class Pipe:
    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.open_ends = {self.reader, self.writer}

    def objects(self) -> list[dict[str, object]]:
        raw = b""
        try:
            while chunk := os.read(self.reader, 65_536):
                raw += chunk
        except BlockingIOError:
            pass
        return [json.loads(line) for line in raw.decode("ascii").splitlines()]

    def read_until_gone(self, writer: threading.Thread) -> None:
        while writer.is_alive():
            select([self.reader], [], [], 0.1)
            with suppress(BlockingIOError):
                os.read(self.reader, 65_536)

    def close_writer(self) -> None:
        os.close(self.writer)
        self.open_ends.discard(self.writer)

    def close_reader(self) -> None:
        os.close(self.reader)
        self.open_ends.discard(self.reader)

    def close(self) -> None:
        for descriptor in self.open_ends:
            os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_a_record_is_one_json_object_with_level_logger_event_and_fields(pipe: Pipe) -> None:
    with JsonLogs(descriptor=pipe.writer):
        logger.info("server %s is up", "docs", extra={"tools": 3, "names": ("a", "b"), "more": {"deep": None}})
    [line] = pipe.objects()
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert line["level"] == "info"
    assert line["logger"] == "riglm.test"
    assert line["event"] == "server docs is up"
    assert (line["tools"], line["names"], line["more"]) == (3, ["a", "b"], {"deep": None})


def test_records_below_the_level_are_not_written(pipe: Pipe) -> None:
    with JsonLogs(descriptor=pipe.writer, level="warning"):
        logger.info("quiet")
        logger.warning("loud")
        logging.getLogger("other").info("not ours")
    assert [line["event"] for line in pipe.objects()] == ["loud"]


def test_an_exception_is_kept_as_text(pipe: Pipe) -> None:
    with JsonLogs(descriptor=pipe.writer):
        try:
            raise KeyError("lost")
        except KeyError:
            logger.exception("it failed")
    [line] = pipe.objects()
    assert "KeyError: 'lost'" in str(line["exception"])


def test_a_line_break_in_a_value_cannot_forge_a_line(pipe: Pipe) -> None:
    forged = 'x\n{"level": "error"}\r\u2028\ud83d'
    with JsonLogs(descriptor=pipe.writer) as output:
        output.handle(logging.makeLogRecord({"msg": "name: %s", "args": (forged,), "tool": forged}))
    [line] = pipe.objects()
    assert line["tool"] == forged


def test_secrets_are_covered_wherever_they_stand(pipe: Pipe) -> None:
    secret = "canary-4711"
    with JsonLogs(descriptor=pipe.writer, secrets=[secret]):
        logger.info(
            "saw %s at http://me:pass1234@host/p?key=query1234",
            secret,
            extra={
                "headers": {"Authorization": "Bearer header1234", "X": [secret]},
                "api_key": "field1234",
                "text": "Authorization: Basic basic1234",
            },
        )
        try:
            raise ValueError(f"refused {secret}")
        except ValueError:
            logger.exception("failed")
    text = json.dumps(pipe.objects())
    for canary in (secret, "pass1234", "query1234", "header1234", "field1234", "basic1234"):
        assert canary not in text


def test_long_and_deep_values_are_bounded(pipe: Pipe) -> None:
    deep: object = "bottom"
    for _ in range(100):
        deep = {"next": deep}
    with JsonLogs(descriptor=pipe.writer):
        logger.info("big", extra={"blob": "y" * 10_000_000, "deep": deep})
    [line] = pipe.objects()
    assert len(str(line["blob"])) == 16_384
    assert isinstance(line["deep"], dict)


def test_a_record_that_cannot_be_read_does_not_reach_the_caller(pipe: Pipe) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

    with JsonLogs(descriptor=pipe.writer) as output:
        output.handle(logging.makeLogRecord({"msg": "%s", "args": (Hostile(),)}))
        output.handle(logging.makeLogRecord({"msg": "fine"}))
        output.handle(logging.makeLogRecord({"msg": "a field that cannot be shown", "field": Hostile()}))
        output.handle(logging.makeLogRecord({"msg": "still here"}))
    events = [line["event"] for line in pipe.objects()]
    assert events == ["1 log records were dropped", "fine", "1 log records were dropped", "still here"]


def test_a_reader_that_has_gone_never_raises(pipe: Pipe) -> None:
    pipe.close_reader()
    with JsonLogs(descriptor=pipe.writer) as output:
        logger.info("to nobody")
    assert output.dropped == 1


def test_a_reader_that_is_slow_gets_every_line_of_a_non_blocking_pipe(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    received: list[bytes] = []

    def read_all() -> None:
        os.set_blocking(pipe.reader, True)
        while chunk := os.read(pipe.reader, 4096):
            received.append(chunk)

    reader = threading.Thread(target=read_all)
    with JsonLogs(descriptor=pipe.writer):
        for number in range(500):
            logger.info("line %d", number, extra={"padding": "z" * 1000})
        reader.start()
    pipe.close_writer()
    reader.join(WAIT_SECONDS)
    events = [json.loads(line)["event"] for line in b"".join(received).splitlines()]
    assert events == [f"line {number}" for number in range(500)]


def test_a_reader_that_never_reads_costs_records_and_not_time(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CAPACITY", 8)
    monkeypatch.setattr(logs, "_TIMEOUT_S", 0.05)
    with JsonLogs(descriptor=pipe.writer) as output:
        for _ in range(1000):
            logger.info("unread", extra={"padding": "z" * 2000})
        assert output.dropped > 0
        [writer] = [thread for thread in threading.enumerate() if thread.name == "riglm-logs"]
    pipe.read_until_gone(writer)


def test_leaving_restores_logging(pipe: Pipe) -> None:
    handlers = list(logging.getLogger().handlers)
    with JsonLogs(descriptor=pipe.writer, level="debug"):
        assert logging.getLogger("riglm").level == logging.DEBUG
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("riglm").level == logging.NOTSET


def test_another_level_and_other_secrets_count_from_the_next_record_on() -> None:
    reader, writer = os.pipe()
    logger = logging.getLogger("riglm.test")
    with JsonLogs(level="warning", secrets=["canary-one"], descriptor=writer) as logs:
        logger.info("not yet")
        logs.follow("debug", ["canary-two"])
        logger.debug("now canary-two")
        logs.follow("error", [])
        logger.warning("no more")
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert [json.loads(line)["event"] for line in file] == ["now ***"]


def test_on_a_terminal_a_record_is_one_readable_line_without_secrets_or_control_characters() -> None:
    reader, terminal = os.openpty()
    with JsonLogs(secrets=["canary-secret"], descriptor=terminal):
        logger.warning("two\x1b[31m\nlines", extra={"token": "x", "upstream": "a", "url": "http://h/?k=canary-secret"})
    line = os.read(reader, 65_536).decode("ascii")
    os.close(terminal)
    os.close(reader)
    assert line.count("\n") == 1
    assert '"a"' in line
    assert "two" in line
    assert "warning" in line
    assert "canary-secret" not in line
    assert "\x1b" not in line
