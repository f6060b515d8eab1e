"""Where the actors of a test stand: servers, riglm between, clients in front, and nobody left at the end."""

import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.spool.sqlite_spool import SqliteSpool
from tests.interaction.clients import http
from tests.interaction.clients.link import Link
from tests.interaction.clients.old_sse import SseLink
from tests.interaction.clients.raw import MODERN, Answer, RawClient
from tests.interaction.clients.stdio import StdioLink
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.log import ServerLog
from tests.interaction.route import Route
from tests.preloaded import MARK, Forked, can_start, process_name, start
from tests.records import calls_by_tool
from tests.started import die_with_the_starter, free_port
from tests.waiting import WAIT_SECONDS, wait_until

SCRIPTED = Path(__file__).parent / "servers" / "scripted.py"
SDK_SERVER = Path(__file__).parent / "servers" / "sdk_server.py"


def marked(mark: str) -> list[int]:
    """The living processes that carry this mark, zombies left out."""
    found = []
    wanted, name = f"{MARK}={mark}".encode(), process_name({MARK: mark}).encode()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environ = (process / "environ").read_bytes()
            if wanted in environ.split(b"\0") or (environ and (process / "comm").read_bytes().strip() == name):
                found.append(int(process.name))
    return found


class Process:
    """A server or riglm in a process group of its own, with its stderr in a file."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], stderr: Path) -> None:
        self.command = command
        self.stderr = stderr
        with stderr.open("ab") as file, Path(os.devnull).open("rb") as nothing:
            self._child: Forked | subprocess.Popen[bytes] = (
                start(command, env, stdin=nothing.fileno(), stderr=file.fileno())
                if can_start(command, env)
                else subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    env=dict(env),
                    start_new_session=True,
                    preexec_fn=die_with_the_starter,  # noqa: PLW1509  # tests start their actors from one thread
                )
            )
        self.pid = self._child.pid

    def read_line(self, within: float = WAIT_SECONDS) -> bytes:
        """The first line of its output."""
        assert self._child.stdout
        ready, _, _ = select.select([self._child.stdout], [], [], within)
        line = self._child.stdout.readline() if ready else b""
        assert line, f"{self.command} said nothing: {self.stderr.read_text(errors='replace')[-2000:]}"
        return line

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    def wait_for_port(self, port: int) -> None:
        """Until it listens on this port of loopback."""

        def is_listening() -> bool:
            assert self.running, (
                f"ended with {self._child.returncode}: {self.stderr.read_text(errors='replace')[-2000:]}"
            )
            return bool(self.listening_on(port))

        wait_until(is_listening, f"a server listens on {port}: {self.command}")

    def listening_on(self, port: int) -> set[str]:
        """The addresses on which the process listens at this port."""
        try:
            found = psutil.Process(self.pid).net_connections("inet")
        except psutil.Error:  # it has ended
            return set()
        return {found.laddr.ip for found in found if found.status == psutil.CONN_LISTEN and found.laddr.port == port}

    def notify(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        os.kill(self.pid, number)

    def wait(self, within: float = WAIT_SECONDS) -> int:
        """Its exit code, once it ended."""
        return self._child.wait(within)

    def end(self, number: signal.Signals = signal.SIGTERM, within: float = WAIT_SECONDS) -> int:
        """Ask it to go, make it go if it stays, and return its exit code."""
        try:
            if self.running:
                self.notify(number)
            return self.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running {within} s after {number.name}: {self.command}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._child.wait(WAIT_SECONDS)
            if self._child.stdout:
                self._child.stdout.close()


class Stage:
    """Starts what a test needs and sees to it that everything ends.

    Processes that listen on a port may be shared between tests: ask for the same thing and get the same process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.called: Counter[str] = Counter()
        self.settings = {
            "RIGLM_FILTERING__MODE": "shadow",  # what is not about filtering runs behind a shadow of it
            "RIGLM_EMBEDDER__PROVIDER": "static",  # a model in each process would take the machine's memory
        }
        self._listening: dict[tuple[str, ...], tuple[str, Process]] = {}

    @property
    def env(self) -> dict[str, str]:
        """The environment of every process on this stage."""
        kept = {name: content for name, content in os.environ.items() if not name.startswith("RIGLM_")}
        own = {MARK: self.mark, "RIGLM_DATA_DIR": str(self.folder / "data"), "NO_PROXY": "*"}
        return {**kept, **own, **self.settings}

    def serving_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of a server of riglm: a data directory of its own, and the SQLite database of all."""
        own = {**self.env, "RIGLM_DATA_DIR": str(self.folder / f"data-{uuid.uuid4().hex}"), **env}
        if "RIGLM_STORAGE__URL" not in own:
            own.setdefault("RIGLM_STORAGE__PATH", str(self.folder / "data" / "riglm.db"))
        return own

    def log(self, *flags: str) -> ServerLog:
        """The log of the scripted servers that were started with these flags."""
        return ServerLog(self.folder / f"server-{_digest(flags)}.jsonl")

    def scripted(self, *flags: str) -> list[str]:
        """The command of a scripted server."""
        return [sys.executable, "-IS", str(SCRIPTED), "--log", str(self.log(*flags).path), *flags]

    def listening(self, *command: str, port: int = 0) -> str:
        """The origin of a server that prints its port, shared by all who give the same command."""
        if command not in self._listening:
            wanted = str(port or free_port())
            process = Process([*command, "--port", wanted], self.env, self.folder / "server.stderr")
            self._listening[command] = ("", process)
            port = json.loads(process.read_line())["port"]
            process.wait_for_port(port)
            self._listening[command] = (f"http://127.0.0.1:{port}", process)
        return self._listening[command][0]

    def process(self, *command: str) -> Process:
        """The process that was started by this command."""
        return self._listening[command][1]

    def restart(self, *command: str) -> None:
        """Kill a listening server and start it anew on its port."""
        self.listening(*command, port=self.kill(*command))

    def kill(self, *command: str) -> int:
        """Kill a listening server; the port that it had."""
        origin, process = self._listening.pop(command)
        process.end(signal.SIGKILL)
        return int(origin.rpartition(":")[2])

    def network_server(self, *flags: str) -> tuple[str, ...]:
        """The command of a scripted server that listens, for `listening` and `restart`."""
        return (*self.scripted(*flags), "--transport", "http", "--lifetime", "3600")

    def riglm(self, verb: str, *arguments: str) -> list[str]:
        """A command of riglm."""
        return [sys.executable, "-m", "riglm", verb, *arguments]

    def serve(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """The origin of `riglm serve` with these arguments, shared by all who give the same ones."""
        key = ("serve", *arguments, *(f"{name}={content}" for name, content in (env or {}).items()))
        if key not in self._listening:
            port = free_port()
            command = self.riglm("serve", "--port", str(port), "--transport", "both", *arguments)
            process = Process(command, self.serving_env(env or {}), self.folder / "riglm.stderr")
            self._listening[key] = (f"http://127.0.0.1:{port}", process)
            process.wait_for_port(port)
        return self._listening[key][0]

    def served_by(self, origin: str) -> Process:
        """The process behind an origin."""
        return next(process for known, process in self._listening.values() if known == origin)

    def back(self, kind: str, *flags: str) -> list[str]:
        """How riglm is told of a scripted server that speaks over `kind`."""
        if kind == "stdio":
            return ["--", *self.scripted(*flags)]
        origin = self.listening(*self.network_server(*flags))
        return ["--url", origin + ("/sse" if kind == "sse" else "/mcp")]

    def link(
        self,
        route: Route,
        *flags: str,
        headers: Mapping[str, str] | None = None,
        listen: bool = True,
        env: Mapping[str, str] | None = None,
        upstream: Sequence[str] | None = None,
    ) -> Link:
        """A client's way into this route; `upstream` replaces what riglm is told of the server."""
        if route.direct and route.front == "stdio":
            return self.pipe(self.scripted(*flags))
        if not route.direct:
            told = self.back(route.back, *flags) if upstream is None else upstream
            if route.front == "stdio":
                return self.pipe(self.riglm("run", *told), env)
            origin = self.serve(*told, env=env)
        else:
            origin = self.listening(*self.network_server(*flags))
        if route.front == "sse":
            return SseLink(origin + "/sse", headers)
        return StreamableLink(origin + "/mcp", headers, listen=listen and route.era != MODERN)

    def pipe(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> StdioLink:
        """A pipe to this command, which is started when the link is opened."""
        return StdioLink(command, {**self.env, **(env or {})}, self.folder / "child.stderr")

    def config(self, name: str, servers: Mapping[str, Any]) -> list[str]:
        """The arguments that give riglm these servers, in the shape that all clients use."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        return ["--mcp-json", str(path)]

    def entry(self, kind: str, *flags: str) -> dict[str, Any]:
        """A scripted server as an entry of a client's configuration."""
        if kind == "stdio":
            command, *arguments = self.scripted(*flags)
            return {"command": command, "args": arguments}
        origin = self.listening(*self.network_server(*flags))
        return {"type": kind, "url": origin + ("/sse" if kind == "sse" else "/mcp")}

    @asynccontextmanager
    async def client(
        self,
        route: Route,
        *flags: str,
        answers: Mapping[str, Answer] | None = None,
        greet: bool = True,
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        upstream: Sequence[str] | None = None,
    ) -> AsyncIterator[RawClient]:
        """A raw client on this route that has greeted the server; when it leaves, its process must end well."""
        link = self.link(route, *flags, headers=headers, env=env, upstream=upstream)
        async with RawClient(link, route.era, answers=answers, version=version) as client:
            if greet:
                await client.greet()
            try:
                yield client
            finally:
                if not route.direct:
                    self.called += client.called
        if isinstance(link, StdioLink) and not route.direct:
            said = link.stderr.read_text(errors="replace")[-2000:]
            assert link.exit_code == 0, f"riglm ended with {link.exit_code}: {said}"
            assert client.strays == [], f"riglm's output was not clean: {client.strays[:3]}"

    def store(self) -> SqlAnalytics:
        """What every riglm on this stage recorded; open it only when they have ended."""
        found = f"sqlite:///{self.folder / 'data' / 'riglm.db'}"
        for spool in {file.parent for file in self.folder.glob("data*/spool/*/*.db")}:
            _bring_in(spool, found)
        return SqlAnalytics(found)

    def recorded(self) -> Counter[str]:
        """How often each tool was called, by what was recorded."""
        with self.store() as store:
            return calls_by_tool(store)

    def damage(self) -> list[str]:
        """What is wrong with the database file itself."""
        with contextlib.closing(sqlite3.connect(self.folder / "data" / "riglm.db")) as database:
            told = [row[0] for row in database.execute("PRAGMA integrity_check")]
        return [line for line in told if line != "ok"]

    def close(self) -> None:
        """End every process; one that does not go, or has to be found by its mark, fails the test."""
        problems = []
        for _, process in self._listening.values():
            if not process.running and process.wait() not in {0, -signal.SIGKILL}:
                said = process.stderr.read_text(errors="replace")[-2000:]
                problems.append(f"ended with {process.wait()}: {process.command}: {said}")
            try:
                process.end()
            except AssertionError as problem:
                problems.append(str(problem))
        self._listening.clear()
        for pid, command in self.leaks(WAIT_SECONDS).items():
            problems.append(f"left behind: {pid} {command}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not problems, "\n".join(problems)

    def leaks(self, within: float, besides: Sequence[int] = ()) -> dict[int, str]:
        """The processes of this stage that are alive after the time given, with their commands."""
        deadline = time.monotonic() + within
        while left := [pid for pid in marked(self.mark) if pid not in besides]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        named = {}
        for pid in left:
            with contextlib.suppress(OSError):
                named[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return named


def _digest(flags: Sequence[str]) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, "\0".join(flags)).hex[:12]


def _bring_in(spool: Path, url: str) -> None:
    """Store what a riglm left in its spool because the machine was too busy at its end, as the next one would."""
    with SqliteSpool(spool) as left, SqlAnalytics(url) as store:
        while (found := left.read(500)) is not None:
            store.record_many(found.records)
            left.remove()


async def raw_post(
    url: str, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """One POST as it is: status, headers and body of its response."""
    basic = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    response = await http.send("POST", url, {**basic, **(headers or {})}, body)
    try:
        return response.status, response.headers, await response.body()
    finally:
        await response.close()
