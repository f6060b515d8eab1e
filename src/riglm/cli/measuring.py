"""What the commands of `riglm evaluate` share: their options, what they measure with, and how they show it."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.output import print_json, print_table
from riglm.domain.errors import UnusableInputError
from riglm.domain.shortage import failed_write

if TYPE_CHECKING:
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.embedder import EmbedderPort
    from riglm.ports.predictor import PredictorPort


SideOption = Annotated[
    str, typer.Option("--side", metavar="SIDE", help="Which side of each set is measured; sides are never mixed.")
]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", show_default=False, help="Sets; all when none is named.")
]
CutsOption = Annotated[str, typer.Option("--k", metavar="K,K...", help="How many of the first tools are looked at.")]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", metavar="F", help="Where vectors are kept for the next time; by default in the cache."),
]


def data_option(file: str) -> Any:
    """The option that names the sets, of which each side has this file."""
    words = f"A directory of sets, NAME/tools.jsonl and NAME/SIDE/{file}, or the directory of one set."
    return typer.Option("--data", metavar="DIR", help=words)


def parse_cuts(text: str) -> list[int]:
    """The numbers of a list like 5,10,15, in ascending order, each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 and int(part) for part in parts):
        raise typer.BadParameter(f"{text[:40]!r} is no list of numbers from 1 on, like 5,10,15", param_hint="--k")
    return sorted({int(part) for part in parts})


def parse_kinds(asked: Sequence[str], settings: "Settings", *, others: Sequence[str] = ()) -> list[str]:
    """Return the kinds to measure, each once; `others` are no kinds of predictors and are measured in addition."""
    from riglm.adapters.prediction.selection import available

    kinds = list(dict.fromkeys(asked))
    for kind in kinds:
        if kind in others:
            continue
        if kind not in available():
            known = ", ".join([*available(), *others])
            raise typer.BadParameter(f"{kind!r} is none of {known}", param_hint="--predictor")
        make_predictor(kind, settings)
    return kinds


def make_predictor(kind: str, settings: "Settings") -> "PredictorPort":
    """A predictor of this kind, without options."""
    from riglm.composition.prediction import build_predictor

    chosen = settings.predictor.model_copy(update={"kind": kind, "options": {}})
    return build_predictor(settings.model_copy(update={"predictor": chosen}))


def read_settings(config: Path | None) -> "Settings":
    """The settings that a configuration file makes."""
    from riglm.adapters.configuration.loading import Options, load

    return load(Options(config=config, with_servers=False)).settings


@contextlib.contextmanager
def open_embedder(settings: "Settings", cache: Path | None) -> Iterator["EmbedderPort"]:
    """Return the configured embedder; its vectors are cached in a separate file, apart from what riglm recorded.

    Raises:
        UnusableInputError: there can be no such file.
    """
    import platformdirs

    from riglm.adapters.analytics.vectors import SqlVectors
    from riglm.adapters.embedding.factory import build_embedder

    file = cache or Path(platformdirs.user_cache_dir("riglm", appauthor=False)) / "evaluation.sqlite"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "name a file for vectors with --cache, where you may write"
        raise UnusableInputError(failed_write(file.parent, error, fix)) from error
    vectors = SqlVectors(f"sqlite:///{file}")
    try:
        with build_embedder(settings.embedder, vectors) as embedder:
            yield embedder
    finally:
        vectors.close()


def warn_skipped(name: str, reason: str) -> None:
    """Say on stderr that a set is not measured."""
    typer.echo(f"{name}: left out, {reason}", err=True)


def show_rows(title: str, rows: Sequence[dict[str, Any]], hidden: Sequence[str], *, as_json: bool) -> None:
    """Print rows of figures as JSON, or as a table without what is `hidden`."""
    if as_json:
        print_json(list(rows))
        return
    columns = [column for column in rows[0] if column not in hidden]
    cells = [[_cell(column, row[column]) for column in columns] for row in rows]
    print_table(title, columns, cells, labels=1 + ("dataset" in columns))


def _cell(column: str, value: Any) -> Any:
    """Return a value as a table shows it: a price has three decimals, because strategies differ in the third."""
    if value is None:
        return "-"
    return f"{value:.3f}" if column.startswith("price") else value


def files_in_use(config: Path | None) -> list[Path]:
    """The file that is named, else ./riglm.yaml, else those that `riglm init` made; none when there are none."""
    from riglm.adapters.configuration.loading import FILE_NAME

    if config is not None:
        return [config]
    here = Path(FILE_NAME)
    return [here] if here.is_file() else [file for _, file in installed()]


def settings_in_use(config: Path | None) -> "Settings":
    """The settings that the first of these files makes, for a command that looks at what was recorded."""
    files = files_in_use(config)
    return read_settings(files[0] if files else None)


def installed() -> list[tuple[str, Path]]:
    """The clients that `riglm init` put riglm in front of, each with its configuration; every file once."""
    from riglm.cli.setup_access import installations

    found = {one.configuration: one.client for one in installations() if one.configuration.is_file()}
    return [(client, file) for file, client in found.items()]
