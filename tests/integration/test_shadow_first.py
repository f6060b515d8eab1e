"""From shadow mode over the report to enforcing and back, as a user goes: real commands, a riglm that runs."""

import asyncio
import json
import os
import subprocess
import time

import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.invocation import DiscoveryMethod
from tests.integration.controlled import PATIENCE, controlled
from tests.integration.past import TOOLS, listing_server
from tests.preloaded import riglm_command
from tests.records import a_session, an_exposure, an_invocation
from tests.waiting import wait_until_async

pytestmark = pytest.mark.timeout(300)

WORKFLOW = TOOLS[4:9]
FILE = """\
# of the house
mcpServers:
  notes: {server}   # what it stands in front of

filtering:
  mode: shadow   # look first
  max_tools: 8
"""


def habits(now, sessions=40):
    """Sessions that always did the same."""
    records = []
    for number in range(sessions):
        session = a_session(started_at=now - 3_600 * (sessions - number), ended_at=now, tools_available=TOOLS)
        records += [session, an_exposure(session, *TOOLS)]
        records += [an_invocation(session, tool, upstream="notes", found=DiscoveryMethod.LISTED) for tool in WORKFLOW]
    return records


class Shell:
    """Runs riglm's commands where a configuration and a store are."""

    def __init__(self, riglm):
        self.folder = riglm.folder
        kept = {name: text for name, text in os.environ.items() if not name.startswith("RIGLM_")}
        self.environment = {**kept, "RIGLM_DATA_DIR": str(riglm.folder / "data")}

    def run(self, *words):
        """What a command prints as JSON."""
        command = riglm_command(*words, "--json")
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


async def test_a_user_looks_first_then_enforces_while_it_runs_and_goes_back(tmp_path):
    [program, *words] = listing_server(tmp_path / "tools.json")
    configuration = FILE.format(server=json.dumps({"command": program, "args": words}))
    began = time.time() - 60  # no earlier session is so young
    with controlled(tmp_path, past=habits(time.time()), configuration=configuration) as riglm:
        shell, told = Shell(riglm), asyncio.Event()

        async def heard(message):
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                told.set()

        async with riglm.client(message_handler=heard) as client, asyncio.timeout(8 * PATIENCE):
            assert [tool.name for tool in (await client.list_tools()).tools] == list(TOOLS)
            for tool in (*WORKFLOW[:3], "close_song"):
                await client.call_tool(tool, {})
            shadow = await recorded(riglm, shell, 4, since=began)
            assert (shadow["lists"], shadow["changes"], shadow["missed"]) == (1, 0, 1)
            assert shadow["mean_list"] < shadow["mean_available"] == len(TOOLS)

            dry = await asyncio.to_thread(shell.run, "enforce", "--dry-run")
            assert [(each["before"], each["changed"]) for each in dry["stores"]] == [("shadow", True)]
            switched = await asyncio.to_thread(shell.run, "enforce")
            assert [(each["before"], each["changed"]) for each in switched["stores"]] == [("shadow", True)]
            await told.wait()
            enforced = [tool.name for tool in (await client.list_tools()).tools]
            assert set(WORKFLOW) <= set(enforced)
            assert "close_song" not in enforced

            again = await asyncio.to_thread(shell.run, "enforce")
            assert not again["stores"][0]["changed"]
            told.clear()
            await asyncio.to_thread(shell.run, "shadow")
            await told.wait()
            assert [tool.name for tool in (await client.list_tools()).tools] == list(TOOLS)
            assert (tmp_path / "riglm.yaml").read_text() == configuration


async def recorded(riglm, shell, calls, since):
    """What the report says of shadow mode, once so many calls are stored."""
    with SqlAnalytics(f"sqlite:///{riglm.folder / 'data' / 'riglm.db'}") as store:
        await wait_until_async(lambda: sum(len(each.calls) for each in store.list_training_sessions(1, since)) >= calls)
    report = await asyncio.to_thread(shell.run, "report", "--predictor", "frequency")
    return report["record"]["shadow"]
