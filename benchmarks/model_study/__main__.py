"""Does a model call the right tool with riglm's list, and does it search for the tools that the list hides?

    python -m benchmarks.model_study --base-url URL --model NAME [options]

Tasks of public data sets go to a model behind an API that is compatible with OpenAI's; `OPENAI_API_KEY` is its key.
Each task is run in four arms:

    all tools      the model gets all tools
    riglm          riglm's list and search, in a riglm process as a client starts it
    search only    a client's own tool search, emulated: names in the system prompt, definitions by a search
    riglm's hints  the same search, with the tools loaded from the start that have a preload hint of riglm

riglm has recorded sessions of other templates before. A trial ends with a call of a right tool, with an answer without
a call, or after three requests. The columns are means per task:

    first right    tasks whose first call, without searches, is right
    right          tasks with a right call
    hidden         tasks whose right tools are not in the first list
    searched       of these, tasks with a search
    looked up      of these, tasks with a search, or with an unknown name that riglm answers with the tools it matches

Differences are to the first arm, on the same tasks. An interrupted study goes on with the same command. Without a
model, the command prints the trials that are in the directory of results.
"""

import argparse
import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from mcp import MCPError
from openai import APIConnectionError, AsyncOpenAI, OpenAIError
from rich.console import Console
from rich.table import Table

from benchmarks.evaluation.dataset import DatasetError
from benchmarks.model_study.conversation import ModelError, StudyModel
from benchmarks.model_study.hosts import Arm, StudyHosts
from benchmarks.model_study.results import Results, ResultsError, read_results, summarize
from benchmarks.model_study.tasks import StudyData, StudyTask, read_study_data
from benchmarks.process import StartFailed
from riglm.cli.output import progress

_TIMEOUT: Final = 3_600.0
_COLUMNS: Final = {
    "first_right": "first right, %",
    "right": "right, %",
    "hidden": "hidden, %",
    "searched_when_hidden": "searched, %",
    "looked_up_when_hidden": "looked up, %",
    "tokens": "tokens",
    "requests": "requests",
    "seconds": "seconds",
}


async def run_study(given: argparse.Namespace, data: StudyData, results: Results) -> None:
    """Run the trials that are missing in the results.

    Raises:
        OpenAIError: the server of the model failed.
        StartFailed: riglm did not start.
    """
    hosts = StudyHosts(data.catalog, given.results)
    done = results.done
    arms = [Arm(name) for name in given.arms]
    if {Arm.RIGLM, Arm.HINTS}.intersection(arms):
        await hosts.learn(data.learned)
    missing = [(task, arm) for task in data.tasks for arm in arms if (task.id, arm.value) not in done]
    # Each arm has its own limit: a server with a slot for each arm then keeps the tools of every arm in its cache.
    free = {arm: asyncio.Semaphore(given.at_once) for arm in arms}
    key = os.environ.get("OPENAI_API_KEY", "none")

    async def run(task: StudyTask, arm: Arm) -> None:
        async with free[arm], hosts.open(arm) as host:
            results.add(asdict(await model.run(task, arm, host)))
        advance(1)

    async with AsyncOpenAI(base_url=given.base_url, api_key=key, timeout=_TIMEOUT) as client:
        model = StudyModel(
            client=client,
            name=given.model,
            seed=given.seed,
            max_tokens=given.max_tokens,
            catalog=frozenset(tool["name"] for tool in data.catalog),
        )
        with progress("trials", len(missing)) as advance:
            async with asyncio.TaskGroup() as group:
                for task, arm in missing:
                    group.create_task(run(task, arm))


def _print_table(figures: Sequence[dict[str, Any]]) -> None:
    table = Table("arm", "tasks", *_COLUMNS.values(), title="means per task, with intervals of 95 %")
    for row in figures:
        table.add_row(row["arm"], str(row["tasks"]), *(_cell(row[name]) for name in _COLUMNS))
        if "difference" in row:
            table.add_row("  difference", "", *(_cell(row["difference"].get(name)) for name in _COLUMNS), style="dim")
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _cell(figure: dict[str, float] | None) -> str:
    return "" if figure is None else "{mean:,.1f} [{low:,.1f}, {high:,.1f}]".format_map(figure)


def _study(given: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run the study, if there is a model, and return its configuration and its figures."""
    file = given.results / "trials.jsonl"
    if not (given.base_url and given.model):
        study, trials = read_results(file) if file.exists() else ({}, [])
        return study, list(summarize(trials, given.arms, seed=study.get("seed", given.seed)))
    data = read_study_data(given.data, max_tools=given.tools, max_tasks=given.tasks, seed=given.seed)
    catalog = hashlib.sha256(json.dumps(data.catalog).encode()).hexdigest()
    study = {
        "model": given.model,
        "seed": given.seed,
        "max_tokens": given.max_tokens,
        "catalog": catalog,
        "riglm": version("riglm"),
    }
    given.results.mkdir(parents=True, exist_ok=True)
    results = Results(file, study)
    asyncio.run(run_study(given, data, results))
    return study, list(summarize(results.trials, given.arms, seed=given.seed))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _leaves(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        yield from _leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", metavar="URL", default=os.environ.get("OPENAI_BASE_URL"), help="of the API")
    parser.add_argument("--model", metavar="NAME", help="name of the model at this API")
    parser.add_argument("--tasks", type=_positive, default=200, metavar="N", help="number of tasks (default: 200)")
    parser.add_argument("--tools", type=_positive, default=100, metavar="N", help="maximum of tools (default: 100)")
    parser.add_argument("--arms", nargs="+", choices=[arm.value for arm in Arm], default=[arm.value for arm in Arm])
    parser.add_argument("--seed", type=int, default=1, help="of the model, the sample of tasks and the intervals")
    parser.add_argument("--max-tokens", type=_positive, default=128, metavar="N", help="of an answer (default: 128)")
    parser.add_argument("--at-once", type=_positive, default=1, metavar="N", help="trials of an arm in parallel")
    parser.add_argument("--results", type=Path, default=Path(".cache/model-study"), metavar="DIR", help="its results")
    data = Path(os.environ.get("RIGLM_EVAL_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=data, metavar="DIR", help="the sets; by default RIGLM_EVAL_DATA")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    given = parser.parse_args(arguments)
    figures: list[dict[str, Any]] = []
    trouble = ""
    try:
        study, figures = _study(given)
    except* APIConnectionError:
        trouble = f"{given.base_url} cannot be reached — fix: start the server of the model, or correct --base-url"
    except* (OpenAIError, ModelError) as errors:
        reason = str(next(iter(_leaves(errors)))) or "its answer is no chat completion"
        trouble = f"{given.base_url} cannot be used: {reason} — fix: name the API of a model that calls tools"
    except* (DatasetError, MCPError, OSError, ResultsError, StartFailed) as errors:
        trouble = str(next(iter(_leaves(errors))))
    if trouble:
        print(trouble, file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps({"study": study, "arms": figures}, indent=1))
    elif figures:
        _print_table(figures)
    else:
        print("no study: there are no trials, and there is no model — fix: name one with --base-url and --model")
    return 0


if __name__ == "__main__":
    sys.exit(main())
