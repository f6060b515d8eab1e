"""The sets that are measured, embedded by the installed model."""

from collections.abc import Sequence
from pathlib import Path

from riglm.adapters.analytics.vectors import SqlVectors
from riglm.adapters.embedding.building import build_embedder
from riglm.application.evaluation.dataset import read_dataset
from riglm.application.evaluation.prepared import Prepared, prepare
from riglm.domain.schemas.embedder import Embedder

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


def prepared_sets(data: Path, cache: Path, limit: int, names: Sequence[str] = ()) -> list[Prepared]:
    """The development side of the sets; vectors are taken from the cache where it has them."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    vectors = SqlVectors(f"sqlite:///{cache}")
    try:
        with build_embedder(Embedder(), vectors) as embedder:
            return [prepare(read_dataset(data / name, limit=limit), embedder) for name in names or NAMES]
    finally:
        vectors.close()


def print_table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> None:
    """A table in Markdown, with the mean of each row."""
    print(f"\n{title}\n\n| | {' | '.join(columns)} | mean |\n|---{'|---:' * (len(columns) + 1)}|")
    for name, values in rows:
        mean = sum(values) / max(1, len(values))
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in values)} | {mean:.2f} |", flush=True)
