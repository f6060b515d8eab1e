"""Does Claude Code load the schemas of exactly the tools that riglm has learned to be needed?

    python -m benchmarks.clients.claude_code [--json]

Some sessions teach riglm which of 60 tools are used. Then Claude Code, its tool search on as it is by default, asks a
scripted model on loopback something through riglm, twice, each time in a process of its own. `surface` is left at
`auto`. What riglm sent it is written down on the way. Claude Code has a home of its own, a key that is none, and a
proxy for all but loopback that leads nowhere. Exit code 1 if anything is not as it must be.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from mcp import Client

from benchmarks.cache import InstallationFailed, import_path
from benchmarks.clients.asking import ask
from benchmarks.clients.installed import VERSION, claude_code
from benchmarks.clients.scripted_model import ScriptedModel
from benchmarks.load import catalog
from benchmarks.process import StartFailed
from benchmarks.subject import RIGLM, Served
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.learning import WarmSetKey

TOOLS: Final = 60
UPSTREAM: Final = ("--", sys.executable, "-m", "benchmarks.load.upstream", "stdio", str(TOOLS))
USED: Final = (3, 11, 17, 29, 41, 52)
"""Which tools of the catalogue the sessions that teach use."""

MARK: Final = "anthropic/alwaysLoad"


async def teach(url: str, tools: Sequence[str]) -> None:
    """Use these tools in a few sessions."""
    for _ in range(4):
        async with Client(url, mode="legacy", read_timeout_seconds=30) as client:
            await client.list_tools()
            for tool in tools:
                await client.call_tool(tool, {"text": "it"})


def asked(program: Path, directory: Path, number: int) -> tuple[list[dict[str, Any]], list[bytes]]:
    """What one run of Claude Code asked its model, and what riglm said to it.

    Raises:
        StartFailed: it did not end well, or in time.
    """
    heard = directory / f"heard-{number}.jsonl"
    between = ["-m", "benchmarks.clients.listening_in", str(heard), *RIGLM, "run", *UPSTREAM]
    own = {"RIGLM_DATA_DIR": str(directory / "data"), "PYTHONPATH": import_path()}
    server = {"command": sys.executable, "args": between, "env": own}
    with ScriptedModel() as model:
        ask(program, directory / "home", {"riglm": server}, model, "What is there to do?")
        return [request for request in model.requests if request.get("tools")], heard.read_bytes().splitlines()


def listed(heard: list[bytes]) -> bytes:
    """The last list of tools that riglm sent, as it came."""
    return next((line for line in reversed(heard) if b'"tools":[' in line), b"{}")


def loaded(request: dict[str, Any]) -> list[str]:
    """The tools behind riglm whose schemas a request to the model holds."""
    prefix = "mcp__riglm__"
    tools = [tool for tool in request["tools"] if tool["name"].startswith(prefix) and not tool.get("defer_loading")]
    return sorted(tool["name"].removeprefix(prefix) for tool in tools)


def stored(data: Path) -> tuple[str, ...]:
    """Return the likeliest tools of Claude Code's warm set, as many as were used."""
    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        found = store.get_warm_set(WarmSetKey(client="claude-code", profile="default"))
    shares = {} if found is None else found.usage.probabilities
    return tuple(sorted(shares, key=lambda tool: -shares[tool])[: len(USED)])


def verdict(directory: Path, program: Path) -> dict[str, Any]:
    """Teach, ask twice, compare."""
    theirs = catalog.make(TOOLS)
    used = [str(theirs[number]["name"]) for number in USED]
    served = Served(RIGLM, UPSTREAM, directory / "data", arguments=(), PYTHONPATH=import_path())
    try:
        asyncio.run(teach(f"http://127.0.0.1:{served.port}/mcp", used))
    finally:
        served.process.stop()
    runs = [asked(program, directory, number) for number in range(2)]
    warm = sorted(stored(directory / "data"))
    lists = [listed(heard) for _, heard in runs]
    ours = json.loads(lists[0]).get("result", {}).get("tools", [])
    marked = sorted(tool["name"] for tool in ours if tool.get("_meta", {}).get(MARK) is True)
    return {
        "claude_code": VERSION,
        "warm_set": warm,
        "loaded": [loaded(requests[0]) for requests, _ in runs],
        "checks": {
            "the likeliest tools of the warm set are what was used": warm == sorted(used),
            "these are what is marked": warm == marked,
            "the first request to the model has exactly their schemas": all(
                requests and loaded(requests[0]) == warm for requests, _ in runs
            ),
            "the list is otherwise the upstream's, in its order": [_unmarked(tool) for tool in ours] == theirs,
            "unmarked tools are the upstream's own bytes": all(
                msgspec.json.encode(tool) in lists[0] for tool in theirs if tool["name"] not in marked
            ),
            "the list has the same bytes after a restart": _result(lists[0]) == _result(lists[1]),
        },
    }


def _unmarked(tool: dict[str, Any]) -> dict[str, Any]:
    meta = {name: value for name, value in tool.get("_meta", {}).items() if name != MARK}
    plain = {name: value for name, value in tool.items() if name != "_meta"}
    return {**plain, "_meta": meta} if meta else plain


def _result(line: bytes) -> bytes:
    """The tools of an answer, without its id and how long they may be kept."""
    return line.partition(b'"tools":')[2].partition(b'],"')[0]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true", help="print JSON only")
    options.add_argument("--keep", type=Path, help="a new directory for what was said")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="riglm-claude-") as temporary:
        directory = chosen.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            found = verdict(directory, claude_code())
        except (InstallationFailed, StartFailed) as error:
            print(f"could not run: {error}", file=sys.stderr)
            return 2
    if chosen.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"Claude Code {VERSION}, likeliest: {', '.join(found['warm_set']) or 'none'}")
        for what, holds in found["checks"].items():
            print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(found["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
