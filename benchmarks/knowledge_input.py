"""Naughty strings as questions, tags and content of `inner_voice.retrieve`: `python -m benchmarks.knowledge_input`.

Every string of the list of naughty strings is imported as a thought and as a tag, and then asked for and filtered by,
through `riglm serve` and a real client in both eras. Each answer has to be of the declared schema, or an error of the
closed list but for `internal_error`; and the log at info must hold none of the strings.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from mcp import Client
from rich.console import Console
from rich.table import Table
from tests.interaction.stage import SCRIPTED, Process
from tests.started import free_port

from riglm.adapters.analytics.knowledge.sql import SqlKnowledge
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.knowledge.definition import NAME, OUTPUT_SCHEMA
from riglm.domain.errors import AnalyticsUnavailable
from riglm.domain.identifier import uuid7
from riglm.domain.knowledge.pieces import Embedding, Thought
from riglm.domain.knowledge.provenance import Origin

_CODES = {"invalid_params", "embedder_unavailable", "db_error", "feature_disabled"}
_MODES = {"handshake": "legacy", "modern": "2026-07-28"}
_TELLING = 12
"""A shorter string may be in a log by chance."""


def strings_in(folder: Path) -> list[str]:
    """The strings of the list, without repetitions."""
    read: list[str] = json.loads((folder / "badinput" / "blns.json").read_text("utf-8"))
    return list(dict.fromkeys(read))


def stored(path: Path, strings: list[str]) -> Counter[str]:
    """Keep each string as a thought with itself as its tag; how many were kept, and how many no store can hold."""
    embedder, outcomes = HashingEmbedder(), Counter[str]()
    with SqlKnowledge(f"sqlite:///{path}") as store:
        for words in strings:
            embedding = Embedding(model=embedder.model, vector=embedder.embed([words])[0])
            piece = Thought(
                id=uuid7(),
                owner="",
                text=words,
                origin=Origin.HUMAN,
                created_at=0.0,
                tags=(words,),
                embedding=embedding,
            )
            try:
                outcomes["stored"] += store.add_thoughts([piece])
            except AnalyticsUnavailable:
                outcomes["refused by the store"] += 1
    return outcomes


async def asked(url: str, mode: str, strings: list[str]) -> dict[str, Counter[str]]:
    """What became of each use of each string."""
    validator = Draft202012Validator(OUTPUT_SCHEMA)
    uses: dict[str, Counter[str]] = {"as question": Counter(), "as tag": Counter(), "as excluded tag": Counter()}
    async with Client(url, mode=mode, read_timeout_seconds=60) as client:
        await client.list_tools()
        for words in strings:
            for use, given in (
                ("as question", {"query": words, "floor": 0}),
                ("as tag", {"query": "anything", "include_tags": [words], "floor": 0}),
                ("as excluded tag", {"query": words or "anything", "exclude_tags": [words], "floor": 0}),
            ):
                uses[use][_outcome(await client.call_tool(NAME, given), validator)] += 1
    return uses


def _outcome(result: Any, validator: Any) -> str:
    if not result.is_error:
        validator.validate(result.structured_content)
        return "answered" if result.structured_content["snippets"] else "answered with none"
    code = json.loads(result.content[0].text)["error"]["code"]
    return code if code in _CODES else f"FAULT: {code}"


def leaked(log: str, strings: list[str]) -> list[str]:
    """The strings that are in a log, as they are or as JSON."""
    telling = [words for words in strings if len(words) >= _TELLING]
    return [words for words in telling if words in log or json.dumps(words)[1:-1] in log]


def main() -> int:
    """Print the table; the exit code is 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("RIGLM_EVAL_DATA"), help="the evaluation data")
    chosen = parser.parse_args()
    if chosen.data is None:
        parser.error("say where the evaluation data is, by --data or RIGLM_EVAL_DATA")
    strings = strings_in(Path(chosen.data))
    table = Table("era", "use", "outcome", "strings", title=f"{len(strings)} naughty strings")
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        for outcome, count in stored(folder / "riglm.db", strings).items():
            table.add_row("", "as content", outcome, str(count))
        environment = {
            **os.environ,
            "RIGLM_DATA_DIR": name,
            "RIGLM_EMBEDDER__PROVIDER": "static",
            "SURR_ENABLE_INNER_VOICE": "1",
        }
        command = [sys.executable, "-m", "riglm", "serve", "--port", str(port), "--", sys.executable, str(SCRIPTED)]
        process = Process(command, environment, folder / "riglm.stderr")
        try:
            process.wait_for_port(port)
            faults = 0
            for era, mode in _MODES.items():
                for use, outcomes in asyncio.run(asked(f"http://127.0.0.1:{port}/mcp", mode, strings)).items():
                    for outcome, count in sorted(outcomes.items()):
                        table.add_row(era, use, outcome, str(count))
                        faults += count if outcome.startswith("FAULT") else 0
        finally:
            process.end()
        seen = leaked((folder / "riglm.stderr").read_text("utf-8", "replace"), strings)
    table.add_row("", "in the log at info", "seen", str(len(seen)))
    Console().print(table)
    return 1 if faults or seen else 0


if __name__ == "__main__":
    sys.exit(main())
