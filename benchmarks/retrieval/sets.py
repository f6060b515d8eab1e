"""The sets that are measured, embedded by the installed model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.evaluation.dataset import Dataset, read_dataset, read_tools
from benchmarks.evaluation.retrieval import EmbeddedDataset, PredictedRanking, open_embedder, prepare
from riglm.adapters.prediction.embedding import EmbeddingPredictor

NAMES = (
    "toolathlon",
    "mcptoolbenchpp",
    "bfcl_multiturn",
    "metatool",
    "toollens",
    "toolbench",
    "toolret_apigen",
    "sealtools",
    "toollinkos",
)


SMALL_NAMES = ("toolalpaca", "apibank", "restbench", "nestful", "tooltalk", "workbench")
DISTRACTORS = "mcp_catalog"


def prepared_sets(data: Path, cache: Path, limit: int, names: Sequence[str] = ()) -> list[EmbeddedDataset]:
    """The development side of the sets; vectors are taken from the cache where it has them."""
    with open_embedder(cache) as embedder:
        return [prepare(read_dataset(data / name, limit=limit), embedder) for name in names or NAMES]


def mix_distractors(data: Path, cache: Path, sets: Sequence[EmbeddedDataset]) -> list[EmbeddedDataset]:
    """Return the sets with the tools of the catalog of MCP servers added to each; it takes minutes the first time."""
    tools = tuple(
        replace(tool, name=f"{DISTRACTORS}/{tool.name}", bare_name=tool.bare_name or tool.name)
        for tool in read_tools(data / DISTRACTORS)
    )
    return with_tools(Dataset(name=DISTRACTORS, side="", tools=tools, queries=()), cache, sets)


def with_tools(extra: Dataset, cache: Path, sets: Sequence[EmbeddedDataset]) -> list[EmbeddedDataset]:
    """Return the sets with the tools of `extra` added to each."""
    with open_embedder(cache) as embedder:
        added = prepare(extra, embedder)
    return [
        replace(
            given,
            dataset=replace(given.dataset, tools=(*given.dataset.tools, *extra.tools)),
            vectors={**given.vectors, **added.vectors},
        )
        for given in sets
    ]


def untaught(data: EmbeddedDataset) -> PredictedRanking:
    """Return the ranking of a riglm that has learned nothing."""
    return PredictedRanking(EmbeddingPredictor(), data.retriever(), data)


def print_table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> None:
    """A table in Markdown, with the mean of each row."""
    print(f"\n{title}\n\n| | {' | '.join(columns)} | mean |\n|---{'|---:' * (len(columns) + 1)}|")
    for name, values in rows:
        mean = sum(values) / max(1, len(values))
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in values)} | {mean:.2f} |", flush=True)
