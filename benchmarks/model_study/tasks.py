"""Tasks of the study: requests of public data sets with the tools that recorded agents called first."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.evaluation.dataset import CATALOG, DatasetError, find_sets, rows
from riglm.application.reports.session_replay import digest, usual_schema

SETS: Final = ("workbench", "taubench", "toolathlon")
MAX_CALLS: Final = 12
"""Maximum number of calls of a learned session."""

_SIDE: Final = "dev"
_WRITES_ONLY: Final = "retail train gold"
"""Split of taubench whose sessions lack the look-ups, so that their first call is not what an agent calls first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTask:
    """A request of a user. `right` are the tools that solve it or that a recorded agent called first for it.

    `group` is a hash of its template or scenario: tasks of one group are either all learned from or all asked.
    """

    id: str
    group: str
    text: str
    right: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyData:
    """The raw definitions of all tools, the calls of the sessions to learn from, and the tasks to ask."""

    catalog: tuple[dict[str, Any], ...]
    learned: tuple[tuple[str, ...], ...]
    tasks: tuple[StudyTask, ...]


class _Tool(NamedTuple):
    server: str
    definition: dict[str, Any]


class _Session(NamedTuple):
    group: str
    text: str
    calls: tuple[str, ...]
    solved_by: frozenset[str]


class _StudySet(NamedTuple):
    tools: list[_Tool]
    sessions: list[_Session]


def read_study_data(data: Path, *, max_tools: int, max_tasks: int, seed: int) -> StudyData:
    """Read the sets from the directory `data`; each half of the groups, by a hash with the seed, is learned or asked.

    The catalog has the servers that sessions begin with most often, up to `max_tools` tools.

    Raises:
        DatasetError: a set is missing, or no task has its tools among so few.
    """
    sets = [_read_set(directory) for directory in find_sets(data, SETS, side=_SIDE, file="sessions.jsonl")]
    tools = [tool for one in sets for tool in one.tools]
    sessions = [session for one in sets for session in one.sessions]
    kept = _most_used(tools, (session.calls[0] for session in sessions), max_tools)
    catalog = [tool.definition for tool in tools if tool.server in kept]
    names = {definition["name"] for definition in catalog}
    learned = [session for session in sessions if digest(f"{seed} {session.group}") % 2]
    asked = [session for session in sessions if not digest(f"{seed} {session.group}") % 2]
    tasks = [task for task in _group_tasks(asked) if task.right <= names]
    tasks.sort(key=lambda task: digest(f"{seed} {task.id}"))
    if not tasks:
        raise DatasetError(f"no task can be solved with {max_tools} tools — fix: give more with --tools")
    calls = (tuple(call for call in session.calls if call in names)[:MAX_CALLS] for session in learned)
    return StudyData(
        catalog=tuple(catalog), learned=tuple(each for each in calls if each), tasks=tuple(tasks[:max_tasks])
    )


def _read_set(directory: Path) -> _StudySet:
    tools, names = [], {}
    for row in rows(directory / CATALOG):
        server = row["server"]
        bare_name = row.get("bare_name") or row["name"].removeprefix(f"{server}.")
        names[row["name"]] = name = f"{server}__{bare_name}"  # APIs of models refuse dots
        schema = row.get("input_schema") or usual_schema(name)
        description = row.get("description") or ""
        tools.append(_Tool(server, {"name": name, "description": description, "inputSchema": schema}))
    queries = directory / _SIDE / "queries.jsonl"
    solved_by = {row["query"]: row["tools"] for row in rows(queries)} if directory.name == "workbench" else {}
    sessions = [
        _Session(
            group=f"{directory.name} {row['group']}",
            text=row["context"],
            calls=tuple(names[call] for call in row["calls"]),
            solved_by=frozenset(names[call] for call in solved_by.get(row["context"], ())),
        )
        for row in rows(directory / _SIDE / "sessions.jsonl")
        if row.get("split") != _WRITES_ONLY
    ]
    return _StudySet(tools, sessions)


def _most_used(tools: Sequence[_Tool], calls: Iterable[str], max_tools: int) -> set[str]:
    servers = {tool.definition["name"]: tool.server for tool in tools}
    use, sizes = Counter(servers[call] for call in calls), Counter(servers.values())
    kept: set[str] = set()
    for server, _ in sorted(use.items(), key=lambda item: (-item[1], item[0])):
        if sum(sizes[each] for each in kept) + sizes[server] <= max_tools:
            kept.add(server)
    return kept


def _group_tasks(sessions: Sequence[_Session]) -> list[StudyTask]:
    """Return one task for each text: what any of its sessions called first is right, and what solves it."""
    right: dict[tuple[str, str], set[str]] = {}
    for session in sessions:
        right.setdefault((session.group, session.text), set(session.solved_by)).add(session.calls[0])
    return [
        StudyTask(id=f"{digest(text):x}", group=f"{digest(group):x}", text=text, right=frozenset(tools))
        for (group, text), tools in right.items()
    ]
