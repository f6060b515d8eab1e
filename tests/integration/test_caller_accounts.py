"""`auth.accounts: caller`: each caller of one `riglm serve` uses a separate account at an OAuth-protected server."""

import asyncio
import json
import os
import subprocess
from types import SimpleNamespace

import pytest
import yaml

from tests.integration.oauth import sites
from tests.integration.oauth_home import redirect_of
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.preloaded import riglm_command
from tests.waiting import wait_until_async

CALLS = int(os.environ.get("RIGLM_INTERLEAVED_CALLS", "120"))
"""How many calls of two callers are interleaved; 10,000 take two minutes."""

TOKENS = {"ann": "a" * 20, "bob": "b" * 20, "eve": "e" * 20}


class Team:
    """A riglm for several callers in front of a protected server and an open one."""

    def __init__(self, stage, issuer, guarded, unguarded):
        self.stage, self.issuer = stage, issuer
        configuration = {
            "mcpServers": {"notes": {"url": guarded, "auth": {"accounts": "caller"}}, "open": {"url": unguarded}},
            "downstream": {"tokens": TOKENS},
            "filtering": {"enabled": False},
            "embedder": {"provider": "static"},
        }
        self.file = stage.folder / "riglm.yaml"
        self.file.write_text(yaml.safe_dump(configuration), "utf-8")
        self.data = {"RIGLM_DATA_DIR": str(stage.folder / "data")}
        self.environment = {**stage.env, **self.data, "HOME": str(stage.folder)}

    def serve(self):
        self.origin = self.stage.serve("--config", str(self.file), env=self.data)

    def run(self, *words, pasted=None):
        """The exit code, stdout and stderr of one command; the URL that it prints is opened and the answer pasted."""
        command = riglm_command(*words)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=self.environment, cwd=self.stage.folder, **pipes) as process:
            lines = []
            while pasted and not (lines and lines[-1].startswith("http")):
                lines.append(process.stderr.readline())
                assert lines[-1], "".join(lines)
            out, err = process.communicate(redirect_of(lines[-1].strip()) + "\n" if pasted else "", timeout=60)
        return process.returncode, out, err

    def log_in(self, caller):
        self.issuer.user = SimpleNamespace(name=f"{caller} at the issuer")
        words = ("login", "notes", "--principal", caller, "--no-browser", "--config", str(self.file))
        code, out, err = self.run(*words, pasted=True)
        assert code == 0, err
        assert f"for {caller}" in out

    def client(self, caller, era):
        headers = {"authorization": f"Bearer {TOKENS[caller]}"}
        return RawClient(StreamableLink(f"{self.origin}/mcp", headers, listen=False), era)


@pytest.fixture
def team(stage):
    with sites() as (issuer, guarded, unguarded):
        yield Team(stage, issuer, guarded, unguarded)


async def text(said, tool, arguments):
    called = (await said.call(tool, arguments)).decoded()
    return called["content"][0]["text"]


async def asked(said, calls):
    """Who the server took the caller for, in each of several calls of which eight are on their way at a time."""
    answers, at_once = [], asyncio.Semaphore(8)

    async def ask():
        async with at_once:
            answers.append(await text(said, "notes__who", {}))

    await asyncio.gather(*(ask() for _ in range(calls)))
    return answers


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_interleaved_calls_of_two_callers_are_never_mixed(team, era):
    team.log_in("ann")
    team.log_in("bob")
    team.serve()
    async with team.client("ann", era) as ann, team.client("bob", era) as bob:
        await ann.greet()
        await bob.greet()
        by_ann, by_bob = await asyncio.gather(asked(ann, CALLS // 2), asked(bob, CALLS // 2))
    assert set(by_ann) == {"ann at the issuer"}
    assert set(by_bob) == {"bob at the issuer"}
    assert len(by_ann) + len(by_bob) == CALLS


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_caller_without_an_account_gets_the_command_and_other_servers_work(team, era):
    team.log_in("ann")
    team.serve()
    async with team.client("ann", era) as ann:
        await ann.greet()
        assert await text(ann, "notes__add", {"a": 1, "b": 2}) == "3"
    async with team.client("eve", era) as eve:
        await eve.greet()
        refused = await eve.call("notes__who", {})
        assert b"riglm login notes --principal eve" in refused.raw
        assert b"at the issuer" not in refused.raw
        assert await text(eve, "open__double", {"a": 2}) == "4"
        team.log_in("eve")
        team.issuer.expire()

        async def called():
            answer = await eve.call("notes__who", {})
            return answer if "error" not in answer.parts else None

        answer = await wait_until_async(called, "a server that failed is tried again after five seconds")
        assert answer.decoded()["content"][0]["text"] == "eve at the issuer"
    async with team.client("ann", era) as ann:
        await ann.greet()
        assert await text(ann, "notes__who", {}) == "ann at the issuer"


def test_accounts_are_listed_and_signed_out_for_each_caller(team):
    team.log_in("ann")
    team.log_in("bob")
    listed = json.loads(team.run("accounts", "--json")[1])
    assert [(each["server"], each["principal"]) for each in listed] == [("notes", "ann"), ("notes", "bob")]
    code, _, err = team.run("logout", "notes")
    assert (code, "no account" in err) == (1, True)
    assert team.run("logout", "notes", "--principal", "ann")[0] == 0
    assert [each["principal"] for each in json.loads(team.run("accounts", "--json")[1])] == ["bob"]
    code, _, err = team.run("login", "open", "--principal", "ann", "--config", str(team.file))
    assert "one account for all callers" in err
    assert code == 2
