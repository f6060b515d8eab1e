"""riglm in front of MetaMCP and behind it, with overrides that reach its namespace and changes that come back."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.policy import OverrideKind
from tests.integration import metamcp
from tests.preloaded import riglm_command
from tests.records import an_override
from tests.waiting import WAIT_SECONDS, wait_until_async

SECONDS = WAIT_SECONDS
LISTING = [sys.executable, "-IS", str(Path(__file__).with_name("listing_server.py"))]
BUNDLED = {"Office": [sys.executable, "-m", "riglm.demo.server", "office"]}
NAMES = {
    "Notes": ("write_note", "read_note", "find_notes"),
    "Units": ("convert_length", "celsius_to_fahrenheit", "known_units"),
}
TOOLS = {f"{server}__{name}" for server, names in NAMES.items() for name in names}
EXCLUDED = "Units__known_units"


class Home:
    """A directory with a configuration and a store, in which riglm runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RIGLM_DATA_DIR": str(folder / "data"),
            "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        }
        (folder / "data").mkdir()
        self.servers = {server: self.listing(server, names) for server, names in NAMES.items()}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def listing(self, name, tools, **definition):
        """The command of a server that lists these tools."""
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps([{"name": tool, "inputSchema": {"type": "object"}, **definition} for tool in tools]))
        return [*LISTING, str(file)]

    def configure(self, servers, **settings):
        """`servers` are one server, or several by name."""
        shape = {"upstream": servers} if "url" in servers or "command" in servers else {"mcpServers": servers}
        text = json.dumps({**shape, "embedder": {"provider": "static"}, **settings})
        (self.folder / "riglm.yaml").write_text(text)

    def put(self, **override):
        """Store an override, as the control API of another process does."""
        made = an_override(**override)
        with SqlAnalytics(f"sqlite:///{self.folder / 'data' / 'riglm.db'}") as store:
            store.put_override(made)
        return made

    def delete(self, override):
        with SqlAnalytics(f"sqlite:///{self.folder / 'data' / 'riglm.db'}") as store:
            assert store.delete_override(override.id)

    @contextlib.asynccontextmanager
    async def client(self, mode="legacy"):
        """A client of riglm over stdio, with an event that is set at each change of the list."""
        changed = asyncio.Event()

        async def notified(message):
            if type(message).__name__ == "ToolListChangedNotification":
                changed.set()

        program, *words = riglm_command("run", "--config", "riglm.yaml")
        server = StdioServerParameters(command=program, args=words, env=self.environment, cwd=self.folder)
        with (self.folder / "log").open("a") as log:
            async with Client(
                stdio_client(server, errlog=log), mode=mode, message_handler=notified, read_timeout_seconds=SECONDS
            ) as client:
                client.changed = changed
                yield client


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
def gateway(home):
    with metamcp.running(home.servers, home.environment) as found:
        yield found


@pytest.fixture(scope="module")
def bundled_gateway():
    with metamcp.running(BUNDLED, os.environ) as found:
        yield found


def entry(gateway, transport="mcp", **managed):
    """The entry of a server that is MetaMCP, whose namespace riglm manages."""
    account = {"email": metamcp.EMAIL, "password": metamcp.PASSWORD, "interval": 0.3, **managed}
    return {"url": gateway.url(transport), "auth": {"token": gateway.key}, "metamcp": account}


async def listed(client):
    return {tool.name for tool in (await client.list_tools()).tools}


async def updated(gateway):
    """Wait until riglm has compared its overrides with the namespace twice."""
    before = gateway.reads
    await wait_until_async(lambda: gateway.reads > before + 2)


async def next_list(client, expected, prefix=""):
    """Follow the announced changes until these tools of MetaMCP are listed, and no others of it."""
    wanted, servers = {f"{prefix}{name}" for name in expected}, (f"{prefix}Notes", f"{prefix}Units")
    async with asyncio.timeout(SECONDS):
        client.changed.clear()
        while {name for name in await listed(client) if name.startswith(servers)} != wanted:
            await client.changed.wait()
            client.changed.clear()


@pytest.mark.parametrize(("transport", "mode"), [("mcp", "auto"), ("sse", "legacy")])
async def test_tools_of_a_namespace_work_through_riglm(home, bundled_gateway, transport, mode):
    home.configure({"url": bundled_gateway.url(transport), "auth": {"token": bundled_gateway.key}})
    async with home.client(mode) as client:
        assert await listed(client) >= {"Office__add_task", "Office__list_tasks"}
        await client.call_tool("Office__add_task", {"text": "paint the pier"})
        assert "paint the pier" in (await client.call_tool("Office__list_tasks", {})).content[0].text


@pytest.mark.parametrize(("transport", "is_one_of_several"), [("mcp", False), ("sse", True)])
async def test_an_exclusion_reaches_metamcp_and_ends_there(home, gateway, transport, is_one_of_several):
    meta, prefix = entry(gateway, transport), "meta__" if is_one_of_several else ""
    units = {"command": home.servers["Units"]}
    home.configure({"meta": meta, "own": units} if is_one_of_several else meta)
    async with home.client() as client, home.client() as other:
        await next_list(client, TOOLS, prefix)
        await next_list(other, TOOLS, prefix)
        exclusion = home.put(kind=OverrideKind.EXCLUDE, tool=f"{prefix}{EXCLUDED}")
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})

        async def refused():  # MetaMCP serves statuses from its cache
            answer = await client.call_tool(f"{prefix}{EXCLUDED}", {})
            return answer if answer.is_error else None

        assert "inactive" in (await wait_until_async(refused)).content[0].text
        home.delete(exclusion)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "ACTIVE"})
        await next_list(client, TOOLS, prefix)
        await next_list(other, TOOLS, prefix)
        assert not (await client.call_tool(f"{prefix}{EXCLUDED}", {})).is_error


@pytest.mark.parametrize(("transport", "is_one_of_several"), [("mcp", False), ("sse", True)])
async def test_a_change_in_metamcp_is_announced(home, gateway, transport, is_one_of_several):
    meta, prefix = entry(gateway, transport), "meta__" if is_one_of_several else ""
    home.configure({"meta": meta, "own": {"command": home.servers["Units"]}} if is_one_of_several else meta)
    override = home.put(kind=OverrideKind.EXCLUDE, tool=f"{prefix}{EXCLUDED}")
    async with home.client() as client:
        await listed(client)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
        await next_list(client, TOOLS - {EXCLUDED}, prefix)
        home.delete(override)
        await next_list(client, TOOLS, prefix)
        gateway.set_status(EXCLUDED, "INACTIVE")
        await next_list(client, TOOLS - {EXCLUDED}, prefix)
        gateway.set_status(EXCLUDED, "ACTIVE")
        await next_list(client, TOOLS, prefix)


async def test_what_is_changed_in_metamcp_stays_as_it_is(home, gateway):
    home.configure(entry(gateway))
    first = home.put(kind=OverrideKind.EXCLUDE, tool=EXCLUDED)
    async with home.client() as client:
        await listed(client)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
        gateway.set_status(EXCLUDED, "ACTIVE")
        await updated(gateway)
        assert gateway.statuses() == {EXCLUDED: "ACTIVE"}
        home.put(kind=OverrideKind.EXCLUDE, tool=EXCLUDED, created_at=2000.0)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
        home.put(kind=OverrideKind.INCLUDE, tool=EXCLUDED, created_at=3000.0)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "ACTIVE"})
        home.delete(first)


async def test_an_override_of_a_renamed_tool_that_ends_while_riglm_does_not_run_ends_at_the_next_start(home, gateway):
    home.configure(entry(gateway))
    exclusion = home.put(kind=OverrideKind.EXCLUDE, tool=EXCLUDED)
    async with home.client() as client:
        await listed(client)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
        gateway.rename(EXCLUDED, "all_units")
        await updated(gateway)
    home.delete(exclusion)
    assert gateway.statuses() == {EXCLUDED: "INACTIVE"}
    async with home.client() as client:
        await next_list(client, TOOLS - {EXCLUDED} | {"Units__all_units"})
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "ACTIVE"})


async def test_an_endpoint_may_get_a_different_namespace(home, gateway):
    home.configure(entry(gateway))
    exclusion = home.put(kind=OverrideKind.EXCLUDE, tool=EXCLUDED)
    async with home.client() as client:
        await listed(client)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
        for is_deleted in (False, True):
            former = gateway.namespace
            gateway.switch_namespace()
            if is_deleted:
                gateway.delete_namespace(former)
            await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
            assert is_deleted or gateway.statuses(former) == {EXCLUDED: "ACTIVE"}
        home.delete(exclusion)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "ACTIVE"})


async def test_a_different_process_continues_when_the_first_one_ends(home, gateway):
    home.configure(entry(gateway))
    async with home.client() as second:
        await listed(second)
        async with home.client() as first:
            await listed(first)
        home.put(kind=OverrideKind.EXCLUDE, tool=EXCLUDED)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})


async def test_an_outage_of_metamcp_does_no_harm(home, gateway):
    home.configure({"meta": entry(gateway, "sse"), "own": {"command": home.servers["Units"]}})
    async with home.client() as client:
        await next_list(client, TOOLS, "meta__")
        await asyncio.to_thread(gateway.stop)
        home.put(kind=OverrideKind.EXCLUDE, tool=f"meta__{EXCLUDED}")
        for _ in range(20):
            units = await client.call_tool("own__known_units", {})
            assert not units.is_error
        await asyncio.to_thread(gateway.start)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
        await next_list(client, TOOLS - {EXCLUDED}, "meta__")
    assert "cannot be reached" in home.log


async def test_a_tool_that_metamcp_does_not_map_is_reported_once(home):
    odd = {"Odd": home.listing("Odd", ["odd__tool"])}
    with metamcp.running(home.servers | odd, home.environment) as gateway:
        home.configure(entry(gateway))
        home.put(kind=OverrideKind.EXCLUDE, tool="Odd__odd__tool")
        home.put(kind=OverrideKind.EXCLUDE, tool=EXCLUDED)
        async with home.client() as client:
            await listed(client)
            await wait_until_async(lambda: "MetaMCP does not map this tool" in home.log)
            await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
            await updated(gateway)
    assert home.log.count("MetaMCP does not map this tool") == 1


async def test_a_damaged_record_is_reported(home, gateway):
    home.configure(entry(gateway))
    home.put(kind=OverrideKind.EXCLUDE, tool=EXCLUDED)
    async with home.client() as client:
        await listed(client)
        await wait_until_async(lambda: gateway.statuses() == {EXCLUDED: "INACTIVE"})
    [record] = (home.folder / "data").glob("metamcp-*.json")
    record.write_text("{")
    async with home.client():
        await wait_until_async(lambda: "is damaged" in home.log)
        record.unlink()
        await wait_until_async(record.exists)


async def test_a_wrong_password_is_reported_and_does_no_harm(home, gateway):
    home.configure(entry(gateway, password="wrong-password-canary"))
    async with home.client() as client:
        assert await listed(client) >= TOOLS
        await wait_until_async(lambda: gateway.sign_ins > 2)
        assert home.log.count("check `metamcp.email` and `metamcp.password`") == 1
        assert not (await client.call_tool(EXCLUDED, {})).is_error
    shown = subprocess.run(
        riglm_command("config", "show", "--config", "riglm.yaml"),
        cwd=home.folder,
        env=home.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert metamcp.EMAIL in shown
    assert "canary" not in shown + home.log


async def test_tools_work_when_riglm_is_behind_metamcp(home):
    """riglm lists some of its tools, and MetaMCP reaches the others by the tool that calls them."""
    words = "Do the work that the name says, with all that this takes. " * 5
    names = [f"tool{number:02}" for number in range(60)]
    home.configure({"command": home.listing("tools", names, description=words)})
    riglm = riglm_command("run", "--config", str(home.folder / "riglm.yaml"))
    with metamcp.running({"riglm": riglm}, home.environment) as gateway:
        async with (
            httpx2.AsyncClient(headers={"X-API-Key": gateway.key}) as http,
            Client(streamable_http_client(gateway.url("mcp"), http_client=http), mode="legacy") as client,
        ):
            found = await listed(client)
            near, far = (
                next(name for name in names if (f"riglm__{name}" in found) is is_near) for is_near in (True, False)
            )
            assert (await client.call_tool(f"riglm__{near}", {})).content[0].text == near
            search = await client.call_tool("riglm__search_available_tools", {"query": far})
            assert far in str(search.content)
            answer = await client.call_tool("riglm__call_tool", {"name": far, "arguments": {}})
            assert answer.content[0].text == far
