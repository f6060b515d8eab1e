"""Small sets for tests, written as files or ready to be ranked."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from riglm.application.evaluation.dataset import Dataset, Query
from riglm.application.evaluation.retrieval import EmbeddedDataset
from riglm.domain.tool import ToolProfile
from tests.unit.domain.retrieval.samples import MODEL, context, vectors


def write(
    directory: Path, tools: Sequence[Mapping[str, Any] | str], queries: Sequence[Mapping[str, Any] | str]
) -> Path:
    """Lines that are texts are written as they are."""
    (directory / "dev").mkdir(parents=True)
    for path, lines in ((directory / "tools.jsonl", tools), (directory / "dev" / "queries.jsonl", queries)):
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return directory


def prepared(tools: Sequence[ToolProfile], requests: Mapping[str, str]) -> EmbeddedDataset:
    """Each request needs one tool, by name."""
    columns = {tool.name: column for column, tool in enumerate(tools)}
    queries = tuple(Query(id=text, text=text, group="", gold=((columns[tool],),)) for text, tool in requests.items())
    return EmbeddedDataset(
        dataset=Dataset(name="small", side="dev", tools=tuple(tools), queries=queries),
        model=MODEL,
        vectors=vectors(tools),
        contexts=tuple(context(text) for text in requests),
    )
