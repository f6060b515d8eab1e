"""One function for each kind of input from outside. It raises if the input breaks what the parser promises."""

import asyncio
import contextlib
import functools
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.mcp.downstream.http_server import BoundedHttpProtocol
from riglm.adapters.mcp.wire.event_stream import EventParser, EventTooLargeError
from riglm.adapters.mcp.wire.exchange import HttpExchange, HttpHeaders, HttpResponseSink
from riglm.adapters.mcp.wire.http_connection import HttpClientConnection
from riglm.adapters.mcp.wire.messages import LineSplitter, well_formed
from riglm.application.setup import json_members, toml_tables
from riglm.application.setup.json_members import FileNotEditableError
from riglm.application.tool_lists.list_writer import marked_entries, some_entries
from riglm.application.trust import PinnedTools
from riglm.domain import jsonrpc, rawjson, request_params
from riglm.domain.definition_scan import scan_definition
from riglm.domain.errors import ConfigurationError
from riglm.domain.jsonrpc import MalformedMessageError, Raw
from riglm.domain.tool import profile, read_catalog
from riglm.domain.tool_pin import definition_digest

_LIMIT: Final = 64


def _pieces(data: bytes) -> Iterator[bytes]:
    """Cut data where its own bytes say."""
    place = 0
    while place < len(data):
        size = data[place] % 7 + 1
        yield data[place : place + size]
        place += size


def _note_size(lines: list[bytes], size: int, *_: bytes) -> None:
    lines.append(b"%d" % size)


def framing(data: bytes) -> None:
    """Lines are the same, however a stream is cut; those that are too long are counted."""
    seen: list[list[bytes]] = []
    for pieces in ([data], list(_pieces(data))):
        lines: list[bytes] = []
        splitter = LineSplitter(lines.append, partial(_note_size, lines), _LIMIT)
        for piece in pieces:
            splitter.feed(piece)
        splitter.end()
        seen.append(lines)
    assert seen[0] == seen[1]
    expected = [line if len(line) <= _LIMIT else b"%d" % len(line) for line in data.split(b"\n")]
    shown = [line.removesuffix(b"\r") if len(line) <= _LIMIT else line for line in expected]
    assert seen[0] == [line for line in shown if line.strip()]
    well_formed(data).decode()


def message(data: bytes) -> None:
    """A line is a message or a `MalformedMessageError`, and a message can be read, changed and answered."""
    line = well_formed(data)
    rawjson.asked_id(line, line)
    try:
        read = jsonrpc.decode(line)
    except MalformedMessageError as error:
        jsonrpc.error(error.id, error.code, str(error))
        return
    request_params.read(read)
    request_params.envelope(read)
    request_params.client_of(read)
    if read.id is not None:
        assert jsonrpc.decode(read.replace(id=b'"other"').line).id == b'"other"'
        jsonrpc.decode(jsonrpc.error(read.id, jsonrpc.INVALID_REQUEST, "no").line)
    jsonrpc.decode(read.line)


def events(data: bytes) -> None:
    """Events are the same, however a stream is cut."""
    seen: list[list[Any]] = []
    for pieces in ([data], list(_pieces(data))):
        found: list[Any] = []
        parser = EventParser(found.append, _LIMIT)
        with contextlib.suppress(EventTooLargeError):
            for piece in pieces:
                parser.feed(piece)
        seen.append(found)
    shorter, longer = sorted(seen, key=len)
    assert longer[: len(shorter)] == shorter


class _Sink(HttpResponseSink):
    def __init__(self) -> None:
        self.ends = 0

    def head(self, status: int, headers: HttpHeaders) -> None:
        assert 100 <= status <= 999
        headers.get(b"content-type")

    def data(self, chunk: bytes) -> None:
        assert not self.ends

    def end(self) -> None:
        self.ends += 1

    def failed(self, failure: Exception) -> None:
        self.ends += 1


_loop: Final = asyncio.new_event_loop()


class _Transport(asyncio.Transport):
    """Takes everything, and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closing = False

    def write(self, data: object) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True

    def is_closing(self) -> bool:
        return self._is_closing


_asked: Final[list[dict[str, Any]]] = []


async def _app(scope: dict[str, Any], _receive: object, _send: object) -> None:
    _asked.append(scope)


@functools.cache
def _config() -> uvicorn.Config:
    config = uvicorn.Config(_app, log_config=None, lifespan="off")
    config.load()
    return config


def http(data: bytes) -> None:
    """The answer of a server ends exactly once; a client's request is refused, or handed over with one `Host`."""
    sink = _Sink()
    connection = HttpClientConnection(lambda _: None, lambda _: None, 4096)
    connection.connection_made(_Transport())
    connection.start(HttpExchange(b"GET / HTTP/1.1\r\n\r\n", sink, "the server"))
    for piece in _pieces(data):
        connection.data_received(piece)
    connection.connection_lost(None)
    assert sink.ends == 1

    async def serve() -> None:
        protocol = BoundedHttpProtocol(_config(), uvicorn.server.ServerState(), {}, _loop)
        protocol.connection_made(_Transport())
        for piece in _pieces(data):
            protocol.data_received(piece)
        await asyncio.sleep(0)
        protocol.connection_lost(None)

    _asked.clear()
    _loop.run_until_complete(serve())
    for scope in _asked:
        names = [name for name, _ in scope["headers"]]
        assert all(names.count(name) <= 1 for name in (b"host", b"origin", b"authorization"))


def tool_list(data: bytes) -> None:
    """Any list can be read, compared, searched and written again, and its entries stay as they were."""
    catalog = read_catalog(data)
    for tool in catalog.tools:
        profile(tool)
        assert definition_digest(tool.raw) == definition_digest(Raw(bytes(tool.raw)))
        scan_definition(jsonrpc.plain(tool.raw), ["other_tool"])
    names = frozenset(catalog.names)
    assert len(jsonrpc.elements(some_entries(catalog, names, {}, search_first=True, has_hints=False))) == len(
        catalog.tools
    )
    jsonrpc.elements(marked_entries(catalog, names, names))
    entries = [tool.raw for tool in catalog.tools]

    async def review() -> None:
        pins = PinnedTools({"server": "hold"})
        pins.read([])
        pins.review("server", entries)
        again = pins.review("server", entries)
        refused = [name for name in names if pins.refusal("server", name)]
        counts = [bytes(entry) for entry in entries]
        if len(names) == len(entries):
            assert list(again) == entries
            assert not refused
        assert all(bytes(entry) in counts for entry in again)

    _loop.run_until_complete(review())


def configuration(data: bytes) -> None:
    """A file is a configuration or a `ConfigurationError`."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("riglm.yaml", "riglm.json"):
            file = Path(folder) / name
            file.write_bytes(data)
            with contextlib.suppress(ConfigurationError):
                settings = load(Options(config=file), environment={}).settings
                settings.upstream_specs()
                settings.secrets()


def client_file(data: bytes) -> None:
    """A client's file is refused, or its servers move behind riglm and come back to the byte."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    entry = ("riglm", {"command": "riglm", "args": ["run"]})
    for adapter, path in ((json_members, ("mcpServers",)), (toml_tables, ("mcp_servers",))):
        with contextlib.suppress(FileNotEditableError):
            values = adapter.parse(text)
            servers = values.get(path[0])
            names = [name for name in servers if name != "riglm"] if isinstance(servers, dict) else []
            if not names or "riglm" in servers:
                continue
            moved = adapter.replace_entries(text, path, names, entry)
            assert list(adapter.parse(moved)[path[0]]) == ["riglm"]
            json.dumps(adapter.parse(moved), default=str)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target for target in (framing, message, events, http, tool_list, configuration, client_file)
}
"""The targets by name."""
