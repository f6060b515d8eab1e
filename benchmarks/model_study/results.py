"""Figures of the study: shares and means of each arm, and their differences to the first arm on the same tasks."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.evaluation.dataset import Row, rows

_RESAMPLES: Final = 10_000
_BOUNDS: Final = (2.5, 97.5)

FIGURES: Final[Mapping[str, Callable[[Row], float]]] = {
    "first_right": lambda trial: 100.0 * (next((kind for kind in _kinds(trial) if kind != "search"), "") == "right"),
    "right": lambda trial: 100.0 * ("right" in _kinds(trial)),
    "hidden": lambda trial: 100.0 * trial["is_hidden"],
    "searched_when_hidden": lambda trial: 100.0 * ("search" in _kinds(trial)) if trial["is_hidden"] else np.nan,
    "looked_up_when_hidden": lambda trial: (
        100.0 * (not {"search", "guess"}.isdisjoint(_kinds(trial))) if trial["is_hidden"] else np.nan
    ),
    "tokens": lambda trial: trial["tokens"],
    "requests": lambda trial: trial["requests"],
    "seconds": lambda trial: trial["seconds"],
}
"""Figures by name: shares in percent, and means per task."""


def _kinds(trial: Row) -> list[str]:
    return [kind for _, kind in trial["calls"]]


class ResultsError(Exception):
    """Raised when a file of results belongs to a different study."""


class Results:
    """The trials of a study in a file of JSON lines, of which the first is the configuration of the study."""

    def __init__(self, file: Path, study: Mapping[str, Any]) -> None:
        """Read the trials of an interrupted run, or begin the file. A line that was not written to its end is removed.

        Raises:
            ResultsError: the file has the trials of a different model or of different tasks, or is damaged.
        """
        self._file = file
        self.trials: list[Row] = []
        written = file.read_bytes() if file.exists() else b""
        whole = written[: written.rfind(b"\n") + 1]
        if len(whole) < len(written):
            file.write_bytes(whole)
        if not whole:
            self._append(study)
            return
        found, self.trials = read_results(file)
        if found != study:
            raise ResultsError(
                f"{file} is of another study, {json.dumps(found)} — fix: name a new directory with --results"
            )

    @property
    def done(self) -> set[tuple[str, str]]:
        """Return the task and the arm of each trial."""
        return {(trial["task"], trial["arm"]) for trial in self.trials}

    def add(self, trial: Row) -> None:
        """Add a trial to the file."""
        self.trials.append(trial)
        self._append(trial)

    def _append(self, row: Mapping[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read_results(file: Path) -> tuple[Row, list[Row]]:
    """Return the configuration of a study and its trials.

    Raises:
        ResultsError: the file is damaged.
    """
    try:
        study, *trials = rows(file)
    except ValueError as error:
        raise ResultsError(f"{file} is damaged: {error} — fix: name a new directory with --results") from error
    return study, trials


def summarize(trials: Sequence[Row], arms: Sequence[str], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of each arm over the tasks that all arms have done.

    Each figure is its value with the bounds of its 95 % interval, and under `difference` that to the first arm. The
    intervals are percentiles of bootstrap samples of the groups of tasks, the same ones for all arms, as tasks of one
    group are alike (Efron and Tibshirani, An Introduction to the Bootstrap, chapters 8 and 13).
    """
    by_task: dict[str, dict[str, Row]] = {}
    for trial in trials:
        by_task.setdefault(trial["task"], {})[trial["arm"]] = trial
    tasks = [each for _, each in sorted(by_task.items()) if set(arms) <= set(each)]
    if not tasks:
        return
    groups = sorted({task[arms[0]]["group"] for task in tasks})
    member = np.array([groups.index(task[arms[0]]["group"]) for task in tasks])
    draws = np.random.default_rng(seed).integers(len(groups), size=(_RESAMPLES, len(groups)))
    weights = np.stack([np.bincount(draw, minlength=len(groups)) for draw in draws])[:, member].astype(float)
    base: dict[str, NDArray[np.float64]] = {}
    for arm in arms:
        row: dict[str, Any] = {"arm": arm, "tasks": len(tasks)}
        for name, figure in FIGURES.items():
            values = np.array([figure(task[arm]) for task in tasks])
            row[name] = _interval(values, weights)
            if arm == arms[0]:
                base[name] = values
            elif not name.endswith("when_hidden"):
                row.setdefault("difference", {})[name] = _interval(values - base[name], weights)
        yield row


def _interval(values: NDArray[np.float64], weights: NDArray[np.float64]) -> dict[str, float] | None:
    """Return the mean of the values that are known, and the bounds of its interval; None without values."""
    known = ~np.isnan(values)
    if not known.any():
        return None
    weights, values = weights[:, known], values[known]
    totals = weights.sum(axis=1)
    means = (weights @ values)[totals > 0] / totals[totals > 0]
    low, high = np.percentile(means, _BOUNDS)
    return {"mean": round(float(values.mean()), 2), "low": round(float(low), 2), "high": round(float(high), 2)}
