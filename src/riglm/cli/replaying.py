"""Recorded sessions replayed by each strategy: one way for `riglm evaluate history` and `riglm report`."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from riglm.cli.measuring import make_predictor, parse_kinds
from riglm.cli.output import MAX_ROWS, progress
from riglm.domain.errors import UnusableInputError
from riglm.domain.naming import prefixed
from riglm.ports.prediction_store import ToolPinsPort

if TYPE_CHECKING:
    from riglm.application.evaluation.history import ReplayedHistory
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.analytics import AnalyticsPort, TrainingSession
    from riglm.ports.predictor import PredictorPort

_DAY: Final = 86_400.0

StrategiesOption = Annotated[
    list[str] | None,
    typer.Option("--predictor", metavar="K", help="A kind of predictor, any number of times; all by default."),
]
SessionsOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=MAX_ROWS, help="Maximum number of sessions, the latest.")
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="Only the sessions of this profile.")
]
DaysOption = Annotated[
    int | None, typer.Option("--days", metavar="N", min=1, max=36_500, help="Judge the sessions of the last N days.")
]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        metavar="DATE",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        help="Judge the sessions since then.",
    ),
]
DatabaseOption = Annotated[
    Path | None, typer.Option("--db", metavar="F", help="The database; by default the one of the configuration.")
]


def beginning(days: int | None, since: datetime | None) -> float:
    """From when on sessions are judged, in seconds since the epoch; 0 when all are.

    Raises:
        BadParameter: both are asked for.
    """
    if days is not None and since is not None:
        raise typer.BadParameter("name either --days or --since", param_hint="--since")
    if since is not None:
        return 0.0 if since.year <= 1970 else since.timestamp()  # years without a time stamp raise
    return 0.0 if days is None else time.time() - days * _DAY


def strategies(asked: Sequence[str] | None, settings: "Settings") -> list[str]:
    """The kinds that are judged: those that are asked for, or all."""
    from riglm.adapters.prediction.selection import available

    return parse_kinds(asked or available(), settings)


def store_of(settings: "Settings", db: Path | None) -> "AnalyticsPort | None":
    """The store of the settings, or the file that is named, not yet open; None when nothing was ever recorded.

    Raises:
        UnusableInputError: there is no such file.
    """
    from riglm.cli.usage import recorded

    if db is None:
        return recorded(settings)
    if not db.is_file():
        raise UnusableInputError(f"--db {db}: there is no such database — fix: name a file that riglm recorded to")
    storage = settings.storage.model_copy(update={"kind": "sqlite", "path": str(db)})
    return recorded(settings.model_copy(update={"storage": storage}))


def recorded_sessions(
    settings: "Settings", db: Path | None, limit: int
) -> "tuple[Sequence[TrainingSession], Mapping[str, bytes]]":
    """The latest sessions that used a tool, oldest first, and the raw definitions of tools by name."""
    store = store_of(settings, db)
    if store is None:
        return (), {}
    with store:
        return store.list_training_sessions(limit), definitions_of(store)


def definitions_of(store: object) -> "Mapping[str, bytes]":
    """The raw definitions that servers listed last, by the names that clients use; none if the store has no pins."""
    pins = store.list_tool_pins() if isinstance(store, ToolPinsPort) else ()
    return {name: pin.seen or pin.definition for pin in pins for name in (pin.name, prefixed(pin.server, pin.name))}


def replayed(
    history: "Sequence[TrainingSession]",
    definitions: "Mapping[str, bytes]",
    kinds: Sequence[str],
    settings: "Settings",
    since: float,
) -> "dict[str, ReplayedHistory]":
    """What each strategy would have shown, by lists as the configuration asks for them; with a progress bar."""
    from riglm.application.evaluation.history import walk_history
    from riglm.application.prediction.prediction_settings import Strategy

    walks, prices = {}, settings.prices.prices()
    for kind in kinds:
        strategy = Strategy(name=kind, key=kind, make=partial(_configured, kind, settings))
        with progress(kind, len(history)) as advance:
            walks[kind] = walk_history(
                history,
                strategy,
                settings.filtering,
                prices,
                definitions,
                by_principal=settings.learning.scope == "principal",
                since=since,
                on_session=advance,
            )
    return walks


def _configured(kind: str, settings: "Settings") -> "PredictorPort":
    """A predictor of this kind, with its options where it is the configured one."""
    if kind != settings.predictor.kind:
        return make_predictor(kind, settings)
    from riglm.composition.prediction import build_predictor

    return build_predictor(settings)
