"""The APIs of models that clients speak: which tools a request loads, and how an answer to it is written."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

JsonObject = dict[str, Any]


class LoadedTool(NamedTuple):
    """A tool whose schema is in a request, and the namespace that it is called in, if it has one.

    `is_custom`: it takes a text instead of arguments.
    """

    name: str
    namespace: str = ""
    is_custom: bool = False


class ToolCall(NamedTuple):
    """What the model calls. `id` is the call's own."""

    tool: LoadedTool
    arguments: JsonObject
    id: str


Answer = tuple[bytes, str]
"""A body and its media type."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API. `results` is the number of calls that have a result in a request, `tools` the definitions in it."""

    loaded: Callable[[JsonObject], list[LoadedTool]]
    results: Callable[[JsonObject], int]
    answer: Callable[[JsonObject, int, ToolCall | None], Answer]
    tools: Callable[[JsonObject], list[JsonObject]] = lambda asked: list(asked.get("tools") or ())


def _json(value: Any) -> Answer:
    return json.dumps(value).encode(), "application/json"


def _stream(events: Iterable[Mapping[str, Any]], *, end: bytes = b"") -> Answer:
    said = ((f"event: {one['type']}\n" if "type" in one else "") + f"data: {json.dumps(one)}\n\n" for one in events)
    return "".join(said).encode() + end, "text/event-stream"


_WORD: Final = "done"


def _anthropic_loaded(asked: JsonObject) -> list[LoadedTool]:
    return [LoadedTool(tool["name"]) for tool in asked.get("tools") or () if not tool.get("defer_loading")]


def _anthropic_results(asked: JsonObject) -> int:
    contents = [message["content"] for message in asked["messages"] if isinstance(message["content"], list)]
    return sum(block.get("type") == "tool_result" for blocks in contents for block in blocks)


def _anthropic_answer(asked: JsonObject, number: int, call: ToolCall | None) -> Answer:
    block: JsonObject = {"type": "text", "text": _WORD}
    if call is not None:
        block = {"type": "tool_use", "id": call.id, "name": call.tool.name, "input": call.arguments}
    reason = "end_turn" if call is None else "tool_use"
    message: JsonObject = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": asked.get("model", ""),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    if not asked.get("stream"):
        return _json({**message, "content": [block], "stop_reason": reason})
    if call is None:
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": _WORD}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
    return _stream(
        [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
    )


def _chat_loaded(asked: JsonObject) -> list[LoadedTool]:
    tools = [tool for tool in asked.get("tools") or () if not tool.get("defer_loading")]
    functions = [tool.get("function") or tool.get("custom") or {} for tool in tools]
    return [LoadedTool(one.get("name", "")) for one in functions if not one.get("defer_loading")]


def _chat_results(asked: JsonObject) -> int:
    return sum(message.get("role") == "tool" for message in asked["messages"])


def _chat_answer(asked: JsonObject, number: int, call: ToolCall | None) -> Answer:
    message: JsonObject = {"role": "assistant", "content": _WORD}
    if call is not None:
        function = {"name": call.tool.name, "arguments": json.dumps(call.arguments)}
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"index": 0, "id": call.id, "type": "function", "function": function}]
    base = {"id": f"chat_{number}", "created": 1, "model": asked.get("model", "")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    reason = "stop" if call is None else "tool_calls"
    if not asked.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return _json({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunk = {**base, "object": "chat.completion.chunk"}
    return _stream(
        [
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
        ],
        end=b"data: [DONE]\n\n",
    )


def _responses_tools(asked: JsonObject) -> list[JsonObject]:
    """The tools of a request, and those that items of its input add."""
    items = asked["input"] if isinstance(asked.get("input"), list) else []
    added = (item.get("tools") or () for item in items if item.get("type") == "additional_tools")
    return [*(asked.get("tools") or ()), *(tool for tools in added for tool in tools)]


def _responses_loaded(asked: JsonObject) -> list[LoadedTool]:
    found = []
    for tool in _responses_tools(asked):
        if tool.get("type") == "namespace":
            inner = [one for one in tool.get("tools") or () if not one.get("defer_loading")]
            found += [LoadedTool(one["name"], tool["name"], one.get("type") == "custom") for one in inner]
        elif not tool.get("defer_loading"):
            found.append(LoadedTool(tool.get("name") or tool["type"], is_custom=tool.get("type") == "custom"))
    return found


def _responses_results(asked: JsonObject) -> int:
    items = asked["input"] if isinstance(asked.get("input"), list) else []
    return sum(str(item.get("type", "")).endswith("call_output") for item in items)


def _responses_answer(asked: JsonObject, number: int, call: ToolCall | None) -> Answer:
    text = {"type": "output_text", "text": _WORD, "annotations": []}
    item: JsonObject = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text]}
    if call is not None:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": call.id, "name": call.tool.name}
        if call.tool.is_custom:
            item |= {"type": "custom_tool_call", "input": "".join(map(str, call.arguments.values()))}
        else:
            item["arguments"] = json.dumps(call.arguments)
        item |= {"namespace": call.tool.namespace} if call.tool.namespace else {}
    item["status"] = "completed"
    response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": asked.get("model", "")}
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    complete = {**response, "status": "completed", "output": [item], "usage": usage}
    if not asked.get("stream"):
        return _json(complete)
    events: Sequence[JsonObject] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": complete},
    ]
    return _stream({**event, "sequence_number": place} for place, event in enumerate(events))


def _gemini_loaded(asked: JsonObject) -> list[LoadedTool]:
    declared = (tool.get("functionDeclarations") or () for tool in asked.get("tools") or ())
    return [LoadedTool(one["name"]) for some in declared for one in some]


def _gemini_results(asked: JsonObject) -> int:
    return sum("functionResponse" in part for content in asked["contents"] for part in content.get("parts") or ())


def _gemini_answer(asked: JsonObject, number: int, call: ToolCall | None) -> Answer:
    part: JsonObject = {"text": _WORD}
    if call is not None:
        part = {"functionCall": {"name": call.tool.name, "args": call.arguments}, "thoughtSignature": "c2lnbmVk"}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    content = {"role": "model", "parts": [part]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    answer = {"responseId": f"r{number}", "candidates": [candidate], "usageMetadata": usage}
    return _stream([answer]) if asked["stream"] else _json(answer)


_ANTHROPIC: Final = Dialect(_anthropic_loaded, _anthropic_results, _anthropic_answer)
_CHAT: Final = Dialect(_chat_loaded, _chat_results, _chat_answer)
_RESPONSES: Final = Dialect(_responses_loaded, _responses_results, _responses_answer, _responses_tools)
_GEMINI: Final = Dialect(_gemini_loaded, _gemini_results, _gemini_answer)


def dialect_of(path: str) -> Dialect | None:
    """Return the API of a path that asks for a message; None for other paths."""
    path = path.partition("?")[0]
    if "enerateContent" in path:
        return _GEMINI
    endings = {"/v1/messages": _ANTHROPIC, "/chat/completions": _CHAT, "/responses": _RESPONSES}
    return next((dialect for ending, dialect in endings.items() if path.endswith(ending)), None)
