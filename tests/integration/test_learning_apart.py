"""Who learns from whom, end to end: callers with a token and without one in front of the same server and store."""

import json
import signal
import sys

import pytest

from tests.integration.topical import LESSONS, SERVER, TOOLS
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.stage import Stage

TOKEN = "t" * 20
NAMED, UNNAMED = "named", "unnamed"


class Team:
    """Riglms of one team: one store and key. Each takes the token or none, which is what tells principals apart."""

    def __init__(self, stage: Stage, store: str, scope: str) -> None:
        self.stage = stage
        self.env = {
            "RIGLM_STORAGE__URL": store,
            "RIGLM_PRIVACY__KEY": "k" * 40,
            "RIGLM_LEARNING__SCOPE": scope,
            "RIGLM_FILTERING__MODE": "enforce",
            "RIGLM_FILTERING__COVERAGE": "0.95",
            "RIGLM_FILTERING__COLD_START_LIMIT": "20",
        }

    def serves(self, who: str, run: int) -> str:
        own = {"RIGLM_DATA_DIR": str(self.stage.folder / f"{who}-{run}")}
        token = {"RIGLM_DOWNSTREAM__TOKEN": TOKEN} if who == NAMED else {}
        return self.stage.serve("--", sys.executable, str(SERVER), env={**self.env, **own, **token})

    def ends(self, origin: str) -> None:
        self.stage.served_by(origin).notify(signal.SIGTERM)
        self.stage.served_by(origin).wait()


def client(origin: str, who: str, era: str) -> RawClient:
    headers = {"authorization": f"Bearer {TOKEN}"} if who == NAMED else {}
    return RawClient(StreamableLink(origin + "/mcp", headers, listen=False), era)


async def sent_for(said: RawClient, context: str) -> set[str]:
    """The tools whose definitions riglm sends for a context."""
    answer = json.loads((await said.call("set_context", {"context": context})).words)
    return {tool["name"] for tool in answer["tools"]}


async def found(origin: str, who: str, era: str) -> list[bool]:
    """Of each context: whether the client has what was used in it, in a list that hides tools or sent."""
    outcomes = []
    for context, tools in LESSONS.items():
        async with client(origin, who, era) as asking:
            await asking.greet()
            await asking.request("tools/list")
            sent = await sent_for(asking, context)
            listed = {tool["name"] for tool in (await asking.request("tools/list")).decoded()["tools"]}
            outcomes.append(set(tools) <= listed | sent and not set(TOOLS) <= listed)
    return outcomes


@pytest.mark.parametrize(
    ("scope", "teacher", "others_learn"),
    [("principal", NAMED, False), ("principal", UNNAMED, False), ("instance", NAMED, True)],
)
async def test_what_one_principal_taught_is_in_the_lists_of_another_only_where_all_learn_together(
    stage: Stage, postgres_url: str, scope: str, teacher: str, others_learn: bool
) -> None:
    team = Team(stage, postgres_url, scope)
    for run in range(2):  # a list is not chosen by what was used once
        origin = team.serves(teacher, run)
        async with client(origin, teacher, HANDSHAKE) as teaching:
            await teaching.greet()
            await teaching.request("tools/list")
            for context, tools in LESSONS.items():
                await sent_for(teaching, context)
                for tool in tools:
                    assert "result" in (await teaching.call(tool, {"about": "it"})).parts
        team.ends(origin)
    other = UNNAMED if teacher == NAMED else NAMED
    for who, learned in ((teacher, True), (other, others_learn)):
        origin = team.serves(who, run=2)
        for era in (HANDSHAKE, MODERN):
            assert (who, era, await found(origin, who, era)) == (who, era, [learned] * len(LESSONS))
