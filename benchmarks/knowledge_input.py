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

from riglm.adapters.analytics.knowledge import SqlKnowledge
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.knowledge.definition import NAME, OUTPUT_SCHEMA
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.knowledge import Embedding, Origin, Thought
from riglm.domain.session import uuid7

_REFUSED = "invalid_params"
"""The one code that a question of this kind may get: the model and the store are there, and the tool is on."""

_MODES = {"handshake": "legacy", "modern": "2026-07-28"}
_TELLING = 12
"""A shorter string may be in a log by chance."""


def strings_in(folder: Path) -> list[str]:
    """The strings of the list, without repetitions."""
    read: list[str] = json.loads((folder / "badinput" / "blns.json").read_text("utf-8"))
    return list(dict.fromkeys(read))


def stored(path: Path, strings: list[str]) -> tuple[Counter[str], dict[str, str]]:
    """Keep each string as a thought with itself as its tag; what became of them, and by id what was kept."""
    embedder, outcomes, kept = HashingEmbedder(), Counter[str](), dict[str, str]()
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
                is_new = store.add_thoughts([piece]).new
            except AnalyticsUnavailableError:
                outcomes["FAULT: refused by the store"] += 1
                continue
            outcomes["stored" if is_new else "reads like another one"] += 1
            if is_new:
                kept[f"t:{piece.id}"] = words
    return outcomes, kept


async def asked(url: str, mode: str, strings: list[str], kept: dict[str, str]) -> dict[str, Counter[str]]:
    """What became of each use of each string."""
    tagged = set(kept.values())
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
                result = await client.call_tool(NAME, given)
                outcome = _outcome(result, validator, kept)
                if use == "as tag" and words in tagged:
                    outcome = _outcome_of_its_own(result, outcome, words, kept)
                uses[use][outcome] += 1
    return uses


def _outcome(result: Any, validator: Any, kept: dict[str, str]) -> str:
    """A code, or whether there was something; a fault where a snippet is not word for word what was stored."""
    if result.is_error:
        code = json.loads(result.content[0].text)["error"]["code"]
        return str(code) if code == _REFUSED else f"FAULT: {code}"
    validator.validate(result.structured_content)
    snippets = result.structured_content["snippets"]
    for snippet in snippets:
        whole = kept[snippet["id"]].encode("utf-8", "replace").decode()
        if not whole.startswith(snippet["text"]):
            return "FAULT: other words than were stored"
    return "answered" if snippets else "answered with none"


def _outcome_of_its_own(result: Any, outcome: str, words: str, kept: dict[str, str]) -> str:
    """The outcome where one thought alone has a tag; nothing else may be found by it, and it may be too unlike."""
    candidates = result.structured_content["diagnostics"]["thought_candidates"]
    others = [each for each in result.structured_content["snippets"] if kept[each["id"]] != words]
    return outcome if candidates == 1 and not others else "FAULT: what has the tag is not what is looked at"


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
        faults = 0
        outcomes, kept = stored(folder / "riglm.db", strings)
        for outcome, count in outcomes.items():
            faults += count if outcome.startswith("FAULT") else 0
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
            url = f"http://127.0.0.1:{port}/mcp"
            for era, mode in _MODES.items():
                for use, outcomes in asyncio.run(asked(url, mode, strings, kept)).items():
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
