"""Search answers with a server among the others whose 15 tools are described to be found, or copied."""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.evaluation.dataset import Dataset
from benchmarks.evaluation.retrieval import EmbeddedDataset
from benchmarks.retrieval.sets import prepared_sets, with_tools
from riglm.domain.retrieval.words import split_name
from riglm.domain.tool import ToolProfile

_SETS: Final = ("mcptoolbenchpp", "bfcl_multiturn", "toolathlon")
_ANSWER_SIZES: Final = (5, 10)
_SERVER: Final = "boost"
_TOOLS: Final = 15


def _name(tool: ToolProfile) -> str:
    return split_name(tool.bare_name or tool.name)


def _words(tools: Sequence[ToolProfile], rng: random.Random) -> str:
    sample = rng.sample(tools, min(40, len(tools)))
    found = [word for tool in sample for word in re.findall(r"\w+", f"{_name(tool)} {tool.description}")]
    rng.shuffle(found)
    return " ".join(found[:250])


def _names(tools: Sequence[ToolProfile], rng: random.Random) -> str:
    return "Use this first. " + " ".join(map(_name, rng.sample(tools, min(60, len(tools)))))


def _repeated(tools: Sequence[ToolProfile], rng: random.Random) -> str:
    tool = rng.choice(tools)
    return " ".join([f"{_name(tool)} {tool.description[:200]}"] * 8)


def _server(tools: Sequence[ToolProfile], rng: random.Random) -> str:
    server = rng.choice(tools).server
    return " ".join([tool.description[:150] for tool in tools if tool.server == server][:8])


def _described(
    description: Callable[[Sequence[ToolProfile], random.Random], str], prepared: EmbeddedDataset
) -> tuple[ToolProfile, ...]:
    rng = random.Random(1)
    return tuple(
        ToolProfile(
            name=f"{_SERVER}/{at}",
            server=_SERVER,
            bare_name=f"tool_{at}",
            description=description(prepared.dataset.tools, rng),
        )
        for at in range(_TOOLS)
    )


def _copies(prepared: EmbeddedDataset) -> tuple[ToolProfile, ...]:
    """The tools that are needed most often, under new names."""
    needed = Counter(row for query in prepared.dataset.queries for group in query.gold for row in group)
    return tuple(
        replace(
            prepared.dataset.tools[row],
            name=f"{_SERVER}/{at}",
            server=_SERVER,
            server_description="",
            bare_name=f"better_{at}",
        )
        for at, (row, _) in enumerate(needed.most_common(_TOOLS))
    )


_KINDS: Final[Mapping[str, Callable[[EmbeddedDataset], tuple[ToolProfile, ...]]]] = {
    "words of other tools": partial(_described, _words),
    "names of other tools": partial(_described, _names),
    "one tool's text, eight times": partial(_described, _repeated),
    "texts of one server's tools": partial(_described, _server),
    "copies of popular tools": _copies,
}


def print_stuffing(data: Path, cache: Path, limit: int) -> None:
    """Print recall, the places that the server takes, and what it pushes out, for each kind of tool."""
    for prepared in prepared_sets(data, cache, limit, _SETS):
        for size in _ANSWER_SIZES:
            _print_set(prepared, cache, size)


def _print_set(prepared: EmbeddedDataset, cache: Path, size: int) -> None:
    tools = prepared.dataset.tools
    needed = [{tools[row].name for group in query.gold for row in group} for query in prepared.dataset.queries]
    before = _answers(prepared, size)
    print(f"\n{prepared.dataset.name}, {size} tools in an answer: R@{size} {_recall(needed, before):.1f}\n")
    print(f"| descriptions | R@{size} | places | first tools kept | first tools lost | right tools pushed out |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind, added in _KINDS.items():
        extra = Dataset(name=_SERVER, side="", tools=added(prepared), queries=())
        after = _answers(with_tools(extra, cache, [prepared])[0], size)
        places = sum(name.startswith(f"{_SERVER}/") for answer in after for name in answer) / len(after)
        rows = list(zip(needed, before, after, strict=True))
        first = [(old[0], new) for right, old, new in rows if old and old[0] in right]
        kept = sum(new[:1] == [old] for old, new in first)
        gone = sum(old not in new for old, new in first)
        had = [(right & set(old), set(new)) for right, old, new in rows if right & set(old)]
        lost = sum(not right <= new for right, new in had)
        print(
            f"| {kind} | {_recall(needed, after):.1f} | {places:.2f} | {kept} of {len(first)} | {gone} | "
            f"{lost} of {len(had)} |",
            flush=True,
        )


def _answers(prepared: EmbeddedDataset, size: int) -> list[list[str]]:
    retriever = prepared.retriever()
    return [
        [hit.name for hit in retriever.search(context, size, may_abstain=False).hits] for context in prepared.contexts
    ]


def _recall(needed: Sequence[set[str]], answers: Sequence[Sequence[str]]) -> float:
    shares = [len(right.intersection(answer)) / len(right) for right, answer in zip(needed, answers, strict=True)]
    return 100 * sum(shares) / len(shares)
