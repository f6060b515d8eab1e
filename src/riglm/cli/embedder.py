"""`riglm embedder`: the model that turns texts into vectors."""

import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.embedding.embedders import build_embedders
from riglm.adapters.embedding.fastembed import BUNDLED_MODEL, DIMENSIONS, REVISION, bundled_file, pull_model
from riglm.adapters.embedding.model_client import models_directory
from riglm.cli.output import ConfigOption, JsonOption, print_result
from riglm.domain.schemas.section import EmbedderSettings

app = typer.Typer(help="Manage the embedding model.", rich_markup_mode=None, no_args_is_help=True)

_SAMPLE = "Search the web and return the most relevant pages for a question."


@app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Load the model and show which one is used.

    That is what `run` and `serve` do. No network is used.
    """
    facts = examine(_settings(config))
    embeddings = facts["embeddings"]
    lines = {
        "configured": f"{embeddings['model']} ({embeddings['provider']})",
        "loaded": f"{facts['identity']} ({embeddings['actual_provider']})",
        "quality": f"{embeddings['semantic_quality']}, {embeddings['dimensions']} dimensions",
        "fallback": "yes" if embeddings["is_fallback_active"] else "no",
        "because": facts["reason"],
        "installed": facts["bundled_file"] or "no",
        "downloads": facts["directory"],
        "load": f"{facts['load_ms']:.0f} ms",
        "one text": f"{facts['embed_ms']:.1f} ms",
    }
    print_result(facts, "\n".join(f"{name:12}{text}" for name, text in lines.items() if text), as_json=as_json)


@app.command()
def pull(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="One of fastembed's models, for example BAAI/bge-small-en-v1.5.")
    ],
    config: ConfigOption = None,
    deadline: Annotated[
        float,
        typer.Option("--deadline", metavar="SECONDS", min=0.1, max=86_400, help="Seconds to wait for the download."),
    ] = 900,
    as_json: JsonOption = False,
) -> None:
    """Download a model, so that `embedder.model` can name it.

    No other command uses a network for models.
    """
    pulled: dict[str, Any]
    if model == BUNDLED_MODEL:
        pulled = {"model": model, "identity": f"{model}@{REVISION}", "dimensions": DIMENSIONS}
        words = f"{model} is installed with riglm; there is nothing to download."
    else:
        directory = models_directory(_settings(config))
        typer.echo(f"Downloading {model} into {directory}, for at most {deadline:g} s.", err=True)
        pulled = pull_model(model, directory, timeout=deadline)
        words = "{identity} can be used ({dimensions} dimensions). Set embedder.model to {model}.".format(**pulled)
    print_result(pulled, words, as_json=as_json)


def _settings(config: Path | None) -> EmbedderSettings:
    return load(Options(config=config, with_servers=False)).settings.embedder


def examine(settings: EmbedderSettings) -> dict[str, Any]:
    """Load the configured model, and report the model that is used and why; it may be the fallback."""
    reasons = _Reasons()
    logging.getLogger("riglm.embedder").addHandler(reasons)
    started = time.perf_counter()
    private = settings.model_copy(update={"shared": False})  # it loads the model, and leaves no process
    with build_embedders(private).always as embedder:
        loaded = time.perf_counter()
        embedder.embed([_SAMPLE])
        done = time.perf_counter()
        found = embedder.status()
        return {
            "embeddings": asdict(found),
            "identity": embedder.model,
            "reason": "; ".join(reasons.told) or None,
            "bundled_file": _bundled_file(),
            "directory": str(models_directory(settings)),
            "load_ms": 1000 * (loaded - started),
            "embed_ms": 1000 * (done - loaded),
        }


def _bundled_file() -> str | None:
    try:
        return str(bundled_file())
    except LookupError:
        return None


class _Reasons(logging.Handler):
    """Keeps the reason for a fallback, which the embedder logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's reason."""
        self.told.append(str(record.__dict__.get("reason", record.getMessage())))
