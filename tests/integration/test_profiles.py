"""Two profiles through one riglm at once: lists, learning and statistics are separate, in both eras."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from tests.integration.topical import SERVER, TOOLS, riglm
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.stage import Stage, raw_post
from tests.preloaded import riglm_command
from tests.waiting import wait_until_async

USED = {"review": ("files_read_file", "tickets_list_tickets"), "deploy": ("shell_run_command", "sms_list_messages")}
CONTEXT = "prepare the monthly zebra review"
PATHS = {profile: (f"/mcp/{profile}", {}) for profile in USED}
HEADERS = {profile: ("/mcp", {"riglm-profile": profile}) for profile in USED}
TOKENS = {"anna": "a" * 20, "bert": "b" * 20, "carl": "c" * 20}


def serve(stage: Stage, *, tokens: bool = False) -> str:
    profiles = {
        "review": {"denylist": ["payments_*"], "tokens": ["anna"] * tokens},
        "deploy": {"pinned": ["maps_elevation"], "tokens": ["bert"] * tokens},
    }
    file = stage.folder / "riglm.yaml"
    configuration = {
        "upstream": {"command": sys.executable, "args": [str(SERVER)]},
        "filtering": {"min_tools": 1, "profiles": profiles},
        "downstream": {"tokens": TOKENS if tokens else {}},
    }
    file.write_text(yaml.safe_dump(configuration), "utf-8")
    return stage.serve("--config", str(file), env={"RIGLM_FILTERING__MODE": "enforce"})


def client(origin: str, era: str, path: str, headers: dict[str, str]) -> RawClient:
    return RawClient(StreamableLink(origin + path, headers, listen=False), era)


async def names(said: RawClient) -> set[str]:
    return {tool["name"] for tool in (await said.request("tools/list")).decoded()["tools"]}


async def worked(origin: str, era: str, profile: str, place: tuple[str, dict[str, str]]) -> set[str]:
    """A sub-agent's session in a profile; the tools that it was given first."""
    async with client(origin, era, *place) as said:
        await said.greet()
        listed = await names(said)
        await said.call("set_context", {"context": CONTEXT})
        for tool in USED[profile]:
            assert "result" in (await said.call(tool, {"about": profile})).parts
        return listed


@pytest.mark.parametrize(("era", "places"), [(HANDSHAKE, PATHS), (MODERN, HEADERS)], ids=["by path", "by header"])
async def test_profiles_that_work_at_the_same_time_learn_separately(stage: Stage, era: str, places) -> None:
    origin = serve(stage)

    async def learned() -> tuple[set[str], set[str]] | None:
        """What both were given in one more session, once that is a part of the tools with those that they used."""
        review, deploy = await asyncio.gather(*(worked(origin, era, *each) for each in places.items()))
        is_learned = set(USED["review"]) <= review and set(USED["deploy"]) <= deploy
        is_apart = not review & set(USED["deploy"]) and not deploy & set(USED["review"])
        return (review, deploy) if is_learned and is_apart else None

    _, deploy = await wait_until_async(learned, "each profile lists what was used in it, and not in the other")
    assert "maps_elevation" in deploy
    stage.served_by(origin).notify(signal.SIGTERM)
    stage.served_by(origin).wait()
    for profile, tools in USED.items():
        report = subprocess.run(
            riglm_command("report", "--json", "--profile", profile),
            env=stage.serving_env({}),
            capture_output=True,
            check=True,
        )
        had = {tool for tool in TOOLS if profile == "deploy" or not tool.startswith("payments_")}
        assert set(json.loads(report.stdout)["tools"]["never_used"]) == had - set(tools)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One riglm with two profiles, for all that leaves it as it was."""
    made = Stage(tmp_path_factory.mktemp("profiles"))
    yield serve(made)
    made.close()


async def test_each_profile_denies_what_its_own_list_names(origin: str) -> None:
    async with AsyncExitStack() as stack:
        for era in (HANDSHAKE, MODERN):
            said = {profile: await stack.enter_async_context(client(origin, era, *PATHS[profile])) for profile in USED}
            for each in said.values():
                await each.greet()
            assert not {name for name in await names(said["review"]) if name.startswith("payments_")}
            assert "error" in (await said["review"].call("payments_list_charges", {})).parts
            assert "result" in (await said["deploy"].call("payments_list_charges", {})).parts


async def test_a_session_of_one_profile_is_unknown_in_another(origin: str) -> None:
    async with client(origin, HANDSHAKE, *PATHS["review"]) as said:
        await said.greet()
        session = {"mcp-session-id": said.link.session_id}
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        for path, expected in (("/mcp/deploy", 404), ("/mcp", 404), ("/mcp/review", 200)):
            status, *_ = await raw_post(origin + path, ping, session)
            assert (path, status) == (path, expected)


@pytest.mark.parametrize(
    ("place", "status", "words"),
    [
        (("/mcp/unknown", {}), 404, "deploy, review"),
        (("/mcp", {"riglm-profile": "unknown"}), 404, "deploy, review"),
        (("/mcp", {"riglm-profile": ""}), 404, "deploy, review"),
        (("/mcp/review/more", {}), 404, "deploy, review"),
        (("/mcpreview", {}), 404, "MCP is at /mcp"),
    ],
)
async def test_an_unknown_profile_is_refused_with_the_names_of_those_that_there_are(
    origin: str, place, status: int, words: str
) -> None:
    path, headers = place
    found, _, body = await raw_post(origin + path, b'{"jsonrpc":"2.0","id":1,"method":"ping"}', headers)
    assert found == status
    assert words in body.decode()


async def test_a_token_selects_its_profile_and_no_other(stage: Stage) -> None:
    origin = serve(stage, tokens=True)
    authorized = {who: {"authorization": f"Bearer {token}"} for who, token in TOKENS.items()}
    for who, path, denied in (("anna", "/mcp", True), ("bert", "/mcp", False), ("carl", "/mcp/review", True)):
        async with client(origin, MODERN, path, authorized[who]) as said:
            await said.greet()
            assert ("error" in (await said.call("payments_list_charges", {})).parts) is denied
    status, *_ = await raw_post(origin + "/mcp/deploy", b"{}", authorized["anna"])
    assert status == 403


@pytest.mark.parametrize(
    ("started_in", "profile", "denied"),
    [("shop/src", {}, True), ("shop/src", {"RIGLM_FILTERING__PROFILE": "default"}, False), ("elsewhere", {}, False)],
)
async def test_a_stdio_client_gets_the_profile_of_its_directory_unless_one_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_in: str, profile: dict[str, str], denied: bool
) -> None:
    here = tmp_path / started_in
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    profiles = {"shop": {"directories": [str(tmp_path / "shop")], "denylist": ["payments_*"]}}
    settings = {"RIGLM_FILTERING__PROFILES": json.dumps(profiles), "RIGLM_FILTERING__MODE": "shadow"}
    async with riglm(tmp_path / "data", "auto", **settings, **profile) as said:
        listed = {tool.name for tool in (await said.list_tools()).tools}
        assert ("payments_list_charges" not in listed) is denied
