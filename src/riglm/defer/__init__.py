"""Native requests of model providers that load the selected tools and defer the others to the provider's search.

`anthropic`, `anthropic_mcp` and `openai` make what a request needs from a selection; `learn` and `alearn` learn from
the answer. Tools are dictionaries; answers are dictionaries or objects of the provider's library, which need not be
installed. The modules `agent_framework`, `fastmcp`, `langchain`, `mcp`, `openai_agents` and `pydantic_ai` need the
library that they are named after.

Sources: the Messages API's tool search tool and MCP connector, and the Responses API's tool search.
"""

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from riglm.application.selector.offer import UnusableToolError, shortly
from riglm.application.selector.selecting_service import Selection
from riglm.application.selector.session import ToolSession
from riglm.domain.naming import SEPARATOR

Definition = Mapping[str, Any]
"""A tool as the provider's API takes it."""

Loaded = Selection[Any] | Collection[str]
"""A selection, or the names of its tools."""

_ANTHROPIC_SEARCH: Final = "tool_search_tool"
_CALLS: Final = frozenset({"tool_use", "mcp_tool_use", "function_call", "mcp_call"})


def anthropic(
    tools: Iterable[Definition], loaded: Loaded, *, search: Literal["bm25", "regex"] = "bm25"
) -> list[dict[str, Any]]:
    """Return the `tools` of a request to Anthropic's Messages API.

    Args:
        tools: the definitions. Tools that Anthropic runs, which have no `input_schema`, stay as they are.
        loaded: a selection, or the names of the tools that the model gets at once. The others have `defer_loading`.
        search: the search that finds deferred tools, by words or by regular expressions.
    """
    names = loaded_names(loaded)
    found = [_placed(tool, names) if "input_schema" in tool else dict(tool) for tool in tools]
    has_search = any(str(tool.get("type")).startswith(_ANTHROPIC_SEARCH) for tool in found)
    if not has_search and any(tool.get("defer_loading") for tool in found):
        name = f"{_ANTHROPIC_SEARCH}_{search}"
        found.insert(0, {"type": f"{name}_20251119", "name": name})
    return found


def anthropic_mcp(server: str, loaded: Loaded) -> dict[str, Any]:
    """Return the toolset of an MCP server for a request to Anthropic's Messages API that has a tool search tool.

    `loaded` is a selection of the server's tools by the names that it has there, or those names.
    """
    return {
        "type": "mcp_toolset",
        "mcp_server_name": server,
        "default_config": {"defer_loading": True},
        "configs": {name: {"defer_loading": False} for name in sorted(loaded_names(loaded))},
    }


def openai(
    tools: Iterable[Definition], loaded: Loaded, *, namespaces: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the `tools` of a request to OpenAI's Responses API.

    Args:
        tools: the definitions. Tools of other types than `function` stay as they are.
        loaded: a selection, or the names of the tools that the model gets at once. The others have `defer_loading`.
        namespaces: descriptions of servers by name. Deferred tools `server__tool` of these servers are in a namespace
            of their server's name, which the provider recommends for many tools.
    """
    names, described = loaded_names(loaded), namespaces or {}
    found: list[dict[str, Any]] = []
    spaces: dict[str, dict[str, Any]] = {}
    for tool in tools:
        placed = _placed(tool, names) if tool.get("type") == "function" else dict(tool)
        server = str(tool.get("name")).partition(SEPARATOR)[0]
        if server not in described or not placed.get("defer_loading"):
            found.append(placed)
            continue
        if server not in spaces:
            spaces[server] = {"type": "namespace", "name": server, "description": described[server], "tools": []}
            found.append(spaces[server])
        spaces[server]["tools"].append(placed)
    is_deferring = bool(spaces) or any(tool.get("defer_loading") for tool in found)
    has_search = any(tool.get("type") == "tool_search" for tool in found)
    return [*found, {"type": "tool_search"}] if is_deferring and not has_search else found


def learn(session: ToolSession[Any], answer: object, *, calls: bool = True) -> None:
    """Learn from an answer of either provider: the searches that it reports, and the tools that it calls.

    Args:
        session: the session that learns.
        answer: the message or response, or the list of its parts, as objects of the provider's library or as
            dictionaries. What is neither is left out.
        calls: False if the calls are recorded where they are made.
    """
    for event in _events(answer):
        if isinstance(event, _Search):
            session.searched(event.query, event.found)
        elif calls:
            session.used(event)


async def alearn(session: ToolSession[Any], answer: object, *, calls: bool = True) -> None:
    """As `learn`, without holding up the event loop."""
    for event in _events(answer):
        if isinstance(event, _Search):
            await session.asearched(event.query, event.found)
        elif calls:
            session.used(event)


@dataclass
class RecordedCall:
    """A tool call in flight. `failed` is its outcome, None if it has none yet: nothing is learned then."""

    failed: bool | None = False


@contextlib.contextmanager
def record_call(
    session: ToolSession[Any], tool: str, *, passing: tuple[type[Exception], ...] = ()
) -> Iterator[RecordedCall]:
    """Learn from the call that the block makes, which failed if the block raises.

    Args:
        session: the session that uses the tool.
        tool: its name.
        passing: exceptions that only put off the call.
    """
    call, started = RecordedCall(), time.monotonic()
    try:
        yield call
    except BaseException as error:
        call.failed = None if isinstance(error, passing) or not isinstance(error, Exception) else True
        raise
    finally:
        if call.failed is not None:
            session.used(tool, failed=call.failed, seconds=time.monotonic() - started)


class _Search(NamedTuple):
    query: str
    found: tuple[str, ...]


def loaded_names(loaded: Loaded) -> frozenset[str]:
    """Return the names of loaded tools.

    Raises:
        UnusableToolError: a single text is given.
    """
    if isinstance(loaded, str):
        raise UnusableToolError(f"{shortly(loaded)} is no selection of tools — fix: give a list of names")
    return frozenset(loaded.names if isinstance(loaded, Selection) else loaded)


def _placed(tool: Definition, loaded: Collection[str]) -> dict[str, Any]:
    """A definition that is deferred or not; one without a name is refused, as the provider would."""
    name = tool.get("name")
    if not isinstance(name, str):
        raise UnusableToolError(f"{shortly(tool)} has no name — fix: give definitions as this API takes them")
    placed = {key: value for key, value in tool.items() if key != "defer_loading"}
    return placed if name in loaded else {**placed, "defer_loading": True}


def _events(answer: object) -> Iterator[_Search | str]:
    """The searches and the names of called tools, in their order."""
    content = _plain(answer)
    parts = content.get("content") or content.get("output") if isinstance(content, Mapping) else content
    queries: dict[str, str] = {}
    last = ""
    for part in _mappings(parts):
        kind, name = str(part.get("type")), part.get("name")
        if kind in _CALLS and isinstance(name, str):
            yield name
        elif kind == "tool_search_call" or (kind == "server_tool_use" and str(name).startswith(_ANTHROPIC_SEARCH)):
            last = queries[_id(part)] = _query(part.get("input", part.get("arguments")))
        elif kind in {"tool_search_tool_result", "tool_search_output"} and (found := tuple(_found(part))):
            yield _Search(queries.get(_id(part), last), found)


def _plain(value: object) -> object:
    """What an object of a provider's library holds, or the value itself."""
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _mappings(values: object) -> list[Mapping[str, Any]]:
    """Those of several values that are mappings, or hold what one would."""
    found = [_plain(each) for each in values] if isinstance(values, list | tuple) else []
    return [each for each in found if isinstance(each, Mapping)]


def _id(part: Mapping[str, Any]) -> str:
    return str(part.get("tool_use_id") or part.get("call_id") or part.get("id") or "")


def _query(given: object) -> str:
    """The text that was searched for: the first one among the arguments, or the arguments if they are one."""
    texts = given.values() if isinstance(given, Mapping) else [given]
    return next((text for text in texts if isinstance(text, str)), "")


def _found(part: Mapping[str, Any]) -> Iterator[str]:
    """The names of found tools: Anthropic's references, and OpenAI's definitions, which may be in namespaces."""
    content = part.get("content")
    references = _mappings(content.get("tool_references")) if isinstance(content, Mapping) else []
    tools = _mappings(part.get("tools"))
    inner = [each for tool in tools for each in _mappings(tool.get("tools"))]
    flat = [tool for tool in tools if tool.get("type") != "namespace"]
    names = [each.get("tool_name") for each in references] + [each.get("name") for each in (*flat, *inner)]
    yield from (name for name in names if isinstance(name, str))
