"""The control API of a riglm as users start it: what it shows, what it changes, and who may."""

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.control.schema import schemathesis
from mcp_types import ToolListChangedNotification

from tests.integration.controlled import PATIENCE, READ_TOKEN, WRITE_TOKEN, Controlled, controlled
from tests.integration.past import TOOLS, a_past, definitions, listing_server
from tests.preloaded import riglm_command

pytestmark = pytest.mark.timeout(300)
PHASES = ("--phases", "examples,fuzzing")
"""The others of schemathesis take long: `python -m benchmarks.control schema`."""


class Ears:
    """Hears that the list of tools is another one."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def heard(self) -> None:
        """Wait for it, and from then on for the next one."""
        async with asyncio.timeout(PATIENCE):
            await self._changed.wait()
        self._changed.clear()


async def listed(client: Any) -> set[str]:
    """The server's tools that the client is shown."""
    shown = (await client.list_tools(cache_mode="bypass")).tools
    return {tool.name for tool in shown} & set(TOOLS)


async def asked(riglm: Controlled, method: str, path: str, body: Any = None) -> Any:
    return await asyncio.to_thread(riglm.ask, method, path, body)


async def test_an_override_changes_the_next_list_of_a_client_that_is_told(tmp_path: Path):
    ears = Ears()
    with controlled(tmp_path, settings={"FILTERING__MAX_TOOLS": "50"}) as riglm:
        async with riglm.client(message_handler=ears) as client:
            assert await listed(client) == set(TOOLS)
            made = await asked(riglm, "POST", "/override", {"kind": "exclude", "tool": TOOLS[0], "reason": "noisy"})
            assert made.status == 201
            await ears.heard()
            assert await listed(client) == set(TOOLS[1:])
            (session,) = (await asked(riglm, "GET", "/sessions?active=true")).json["items"]
            seen = (await asked(riglm, "GET", f"/predictions/{session['id']}")).json
            assert TOOLS[0] not in seen["shown"]
            own = {"kind": "exclude", "tool": TOOLS[1], "scope": "session", "key": session["id"]}
            assert (await asked(riglm, "POST", "/override", own)).status == 201
            await ears.heard()
            assert await listed(client) == set(TOOLS[2:])
            assert (await asked(riglm, "DELETE", made.headers["location"])).status == 204
            await ears.heard()
            assert await listed(client) == {TOOLS[0], *TOOLS[2:]}
            assert (await asked(riglm, "POST", "/override", own | {"kind": "include"})).status == 201
            await ears.heard()
            assert await listed(client) == set(TOOLS)
            assert (await asked(riglm, "POST", "/override", own | {"tool": "no_such_tool"})).status == 404


async def test_another_size_of_lists_changes_the_next_list_of_a_client_that_is_told(tmp_path: Path):
    ears = Ears()
    with controlled(tmp_path, past=a_past(time.time())) as riglm:
        async with riglm.client(message_handler=ears) as client:
            await client.call_tool(TOOLS[3], {})
            assert len(await listed(client)) > 2
            shown = await asked(riglm, "GET", "/config")
            changed = await asked(riglm, "PUT", "/config", {"filtering": {"max_tools": 2, "min_tools": 1}})
            assert changed.headers["etag"] != shown.headers["etag"]
            await ears.heard()
            assert TOOLS[3] in (after := await listed(client))
            assert len(after) == 2


def test_it_keeps_what_its_document_promises(tmp_path: Path):
    with controlled(tmp_path, past=a_past(time.time())) as riglm:
        done = schemathesis(riglm.control, WRITE_TOKEN, tmp_path, "--max-examples", "1", "--seed", "1", *PHASES)
        assert done.returncode == 0, done.stdout
        assert "22 selected" in done.stdout, done.stdout
        assert '"level": "error"' not in riglm.log


def test_it_ends_when_it_is_told_to_whoever_is_connected(tmp_path: Path):
    with controlled(tmp_path) as riglm:
        address = ("127.0.0.1", int(riglm.control.rpartition(":")[2]))
        head = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {READ_TOKEN}\r\n".encode()
        with socket.create_connection(address) as idle, socket.create_connection(address) as slow:
            slow.sendall(head)
            idle.sendall(head + b"\r\n")
            assert idle.recv(1 << 16)
            assert riglm.process.end() == 0
    assert "Traceback" not in riglm.log
    assert "destroyed" not in riglm.log


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def started(folder: Path, *words: str, control_port: int, said: str = "") -> subprocess.CompletedProcess[str]:
    """A riglm that ended; `said` is all that its client had to say."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
    own = {"RIGLM_DATA_DIR": str(folder), "RIGLM_CONTROL__ENABLED": "true", "RIGLM_CONTROL__PORT": str(control_port)}
    (folder / "tools.json").write_text(definitions())
    return subprocess.run(
        riglm_command(*words, "--", *listing_server(folder / "tools.json")),
        cwd=folder,
        env=kept | own,
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_serving_ends_with_2_when_the_port_of_control_is_taken(tmp_path: Path, taken: int):
    done = started(tmp_path, "serve", "--port", "0", control_port=taken)
    assert done.returncode == 2
    assert f"control.port: cannot listen on 127.0.0.1:{taken}" in done.stderr
    assert "--control-port" in done.stderr


def test_a_client_on_stdio_is_served_when_the_port_of_control_is_taken(tmp_path: Path, taken: int):
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
    done = started(tmp_path, "run", control_port=taken, said=hello + "\n")
    assert done.returncode == 0
    assert json.loads(done.stdout)["result"]["serverInfo"]
    warnings = [line for line in done.stderr.splitlines() if '"level": "warning"' in line]
    assert len(warnings) == 1
    assert f"control.port: cannot listen on 127.0.0.1:{taken}" in warnings[0]


def test_the_first_start_makes_tokens_that_are_shown_once(tmp_path: Path):
    unset = {"CONTROL__TOKEN": "", "CONTROL__READ_TOKEN": ""}
    with controlled(tmp_path, settings=unset) as riglm:
        assert riglm.ask("GET", "/health", token=None).headers["riglm-access"] == "write"
        command = riglm_command("control", "token", "--json")
        environment = {**os.environ, "RIGLM_DATA_DIR": str(tmp_path / "data")}
        made, new = (
            json.loads(subprocess.run([*command, *more], env=environment, capture_output=True, check=True).stdout)
            for more in ((), ("--new",))
        )
        for scope in ("read", "write"):
            assert riglm.ask("GET", "/health", token=made[scope]).status == 401
            assert riglm.ask("GET", "/health", token=new[scope]).headers["riglm-access"] == scope
        assert not any(token in riglm.log for token in (*made.values(), *new.values()))
