"""A stand-in for a ClickHouse server: its engine (chDB) behind the HTTP interface that the client of riglm uses.

`python -m tests.stores.clickhouse PORT DIRECTORY` serves until it is killed; what was stored is in the directory.
"""

import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.started import free_port
from tests.waiting import WAIT_SECONDS

_DEADLINE_SECONDS = WAIT_SECONDS
_SETTINGS = ("insert_deduplication_token", "mutations_sync", "lightweight_deletes_sync")


class ClickHouseStandIn:
    """The stand-in in a separate process, which can be killed and started again."""

    def __init__(self, directory: Path, database: str = "default") -> None:
        self._directory = directory
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/{database}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "tests.stores.clickhouse", str(self._port), str(self._directory)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self._port}/ping", timeout=5).close()
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)
            else:
                return self

    def stop(self) -> None:
        """Kill it, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Engine:
    """Answers one statement at a time."""

    def __init__(self, directory: Path) -> None:
        self._session: Any = import_module("chdb.session").Session(str(directory))
        self._lock = threading.Lock()

    def run(self, statement: str, parameters: dict[str, str], data: bytes) -> bytes:
        options = {name: parameters[name] for name in _SETTINGS if parameters.get(name)}
        settings = ", ".join(f"{name} = '{value}'" for name, value in options.items())
        with self._lock, tempfile.NamedTemporaryFile() as file:
            self._session.query(f"USE {parameters.get('database', 'default')}")
            for name, value in parameters.items():
                if name.startswith("param_"):
                    self._session.query(f"SET {name} = '{_quoted(value)}'")
            format_ = "TabSeparated"
            if statement.upper().startswith("INSERT"):
                file.write(data)
                file.flush()
                into = statement.rstrip().removesuffix("FORMAT Native")
                statement = f"{into} FROM INFILE '{file.name}' {settings and 'SETTINGS ' + settings} FORMAT Native"
            elif statement.rstrip().endswith("FORMAT Native"):
                statement, format_ = statement.rstrip().removesuffix("FORMAT Native"), "Native"
            return bytes(self._session.query(statement, format_).bytes())


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _decompressed(data: bytes, encoding: str | None) -> bytes:
    if encoding == "lz4":
        return bytes(import_module("lz4.frame").decompress(data))
    if encoding == "zstd":
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def _serve(port: int, directory: Path) -> None:
    engine = _Engine(directory)

    def answer(parameters: dict[str, str], body: bytes, encoding: str | None) -> Response:
        given, separator, data = _decompressed(body, encoding).partition(b"FORMAT Native\n")
        try:
            return Response(engine.run((given + separator).decode(), parameters, data))
        except RuntimeError as error:
            return Response(str(error), status_code=500)

    async def post(request: Request) -> Response:
        parameters, headers = dict(request.query_params), request.headers
        if headers.get("Content-Type", "").startswith("multipart/"):  # sent so if parameters are long
            form = {name: str(value) for name, value in (await request.form()).items()}
            body = form.pop("query").encode()
            return await run_in_threadpool(answer, parameters | form, body, None)
        return await run_in_threadpool(answer, parameters, await request.body(), headers.get("Content-Encoding"))

    async def ping(_: Request) -> Response:
        return Response("Ok.\n")

    app = Starlette(routes=[Route("/ping", ping), Route("/{path:path}", post, methods=["POST"])])
    uvicorn.run(app, port=port, log_level="error")


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
