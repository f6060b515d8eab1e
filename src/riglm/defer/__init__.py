"""Native requests of model providers that load the selected tools and defer the others to the provider's search.

`anthropic`, `anthropic_mcp` and `openai` make what a request needs from a selection; `learn` and `alearn` learn from
the answer. Tools are dictionaries; answers are dictionaries or objects of the provider's library, which need not be
installed. `riglm.defer.pydantic_ai` needs pydantic-ai.

Sources: the Messages API's tool search tool and MCP connector, and the Responses API's tool search.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from riglm.application.selector.session import ToolSession
from riglm.domain.naming import SEPARATOR

Definition = Mapping[str, Any]
"""A tool as the provider's API takes it."""


def anthropic(
    tools: Iterable[Definition], loaded: Collection[str], *, search: Literal["bm25", "regex"] = "bm25"
) -> list[dict[str, Any]]:
    """Return the `tools` of a request to Anthropic's Messages API.

    Args:
        tools: the definitions. Tools that Anthropic runs, which have no `input_schema`, stay as they are.
        loaded: a selection, or the names of the tools that the model gets at once. The others have `defer_loading`.
        search: the search that finds deferred tools, by words or by regular expressions.
    """
    found = [_deferred(tool) if "input_schema" in tool and tool["name"] not in loaded else dict(tool) for tool in tools]
    if any(tool.get("defer_loading") for tool in found):
        name = f"tool_search_tool_{search}"
        found.insert(0, {"type": f"{name}_20251119", "name": name})
    return found


def anthropic_mcp(server: str, loaded: Collection[str]) -> dict[str, Any]:
    """Return the toolset of an MCP server for a request to Anthropic's Messages API that has a tool search tool.

    `loaded` are the selected tools by the server's own names.
    """
    return {
        "type": "mcp_toolset",
        "mcp_server_name": server,
        "default_config": {"defer_loading": True},
        "configs": {name: {"defer_loading": False} for name in loaded},
    }


def openai(
    tools: Iterable[Definition], loaded: Collection[str], *, namespaces: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the `tools` of a request to OpenAI's Responses API.

    Args:
        tools: the definitions. Tools of other types than `function` stay as they are.
        loaded: a selection, or the names of the tools that the model gets at once. The others have `defer_loading`.
        namespaces: descriptions of servers by name. Deferred tools `server__tool` of these servers are in a namespace
            of their server's name, which the provider recommends for many tools.
    """
    described = namespaces or {}
    found: list[dict[str, Any]] = []
    spaces: dict[str, dict[str, Any]] = {}
    for tool in tools:
        if tool.get("type") != "function" or tool["name"] in loaded:
            found.append(dict(tool))
            continue
        server = tool["name"].partition(SEPARATOR)[0]
        if server not in described:
            found.append(_deferred(tool))
            continue
        if server not in spaces:
            spaces[server] = {"type": "namespace", "name": server, "description": described[server], "tools": []}
            found.append(spaces[server])
        spaces[server]["tools"].append(_deferred(tool))
    is_search_needed = spaces or any(tool.get("defer_loading") for tool in found)
    return [*found, {"type": "tool_search"}] if is_search_needed else found


def learn(session: ToolSession[Any], answer: object) -> None:
    """Learn from an answer of either provider: the searches that it reports, and the tools that it calls.

    `answer` is the message or response, as an object of the provider's library or as a dictionary.
    """
    for event in _events(answer):
        if isinstance(event, _Search):
            session.searched(event.query, event.found)
        else:
            session.used(event)


async def alearn(session: ToolSession[Any], answer: object) -> None:
    """As `learn`, without holding up the event loop."""
    for event in _events(answer):
        if isinstance(event, _Search):
            await session.asearched(event.query, event.found)
        else:
            session.used(event)


class _Search(NamedTuple):
    query: str
    found: tuple[str, ...]


def _deferred(tool: Definition) -> dict[str, Any]:
    return {**tool, "defer_loading": True}


def _events(answer: object) -> Iterator[_Search | str]:
    """The searches and the names of called tools, in their order."""
    dump = getattr(answer, "model_dump", None)
    content = dump() if dump is not None else answer
    fields = content if isinstance(content, Mapping) else {}
    queries: dict[str, str] = {}
    last = ""
    parts = fields.get("content") or fields.get("output") or ()
    for part in (each for each in parts if isinstance(each, Mapping)):
        kind = part.get("type")
        if kind in {"tool_use", "function_call"}:
            yield part["name"]
        elif kind in {"server_tool_use", "tool_search_call"}:
            last = queries[_id(part)] = _query(part.get("input", part.get("arguments")))
        elif kind in {"tool_search_tool_result", "tool_search_output"}:
            yield _Search(queries.get(_id(part), last), tuple(_found(part)))


def _id(part: Mapping[str, Any]) -> str:
    return str(part.get("tool_use_id") or part.get("call_id") or part.get("id") or "")


def _query(given: object) -> str:
    """The text that was searched for: the first one among the arguments."""
    texts = given.values() if isinstance(given, Mapping) else [given]
    return next((text for text in texts if isinstance(text, str)), "")


def _found(part: Mapping[str, Any]) -> Iterator[str]:
    content = part.get("content")
    if isinstance(content, Mapping):
        yield from (reference["tool_name"] for reference in content.get("tool_references") or ())
    for tool in part.get("tools") or ():
        inner = tool.get("tools") if tool.get("type") == "namespace" else [tool]
        yield from (each["name"] for each in inner or () if "name" in each)
