"""One task given to a model: its requests, the calls that it makes, and what counts of them."""

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from openai import AsyncOpenAI
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion

from benchmarks.model_study.hosts import SEARCHES, Arm, Definition, StudyHost
from benchmarks.model_study.tasks import StudyTask
from riglm.application.tool_lists.list_writer import CALL_TOOL

MAX_REQUESTS: Final = 3
"""Requests to the model for one task."""

_INSTRUCTIONS: Final = "You are an agent. Use your tools to do what the user wants. Call one tool at a time."
_MAX_TEXT: Final = 20_000
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"]+)"')


class ModelError(Exception):
    """Raised when the server answers with something other than a chat completion."""


class ModelCall(NamedTuple):
    """A tool call of a model. `arguments` is empty if they are no JSON object, as after the limit of tokens."""

    name: str
    arguments: Mapping[str, Any]


class CallKind(StrEnum):
    """What a call is for its task. A guess is a name given to call_tool that riglm answers with the tools it matches.

    Calls of names that are not in the list are wrong, because clients refuse them.
    """

    SEARCH = "search"
    GUESS = "guess"
    RIGHT = "right"
    WRONG = "wrong"


@dataclass(slots=True, kw_only=True)
class Trial:
    """What a model did with one task in one arm.

    `is_hidden` is True if no right tool was in the first list. `tokens` are those of all prompts and answers, of which
    `cached_tokens` were read from a prompt cache. `calls` have their name and their kind; by call_tool, both names.
    """

    task: str
    group: str
    arm: str
    listed: int
    is_hidden: bool
    requests: int = 0
    tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    calls: list[tuple[str, CallKind]] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """True if a right tool was called."""
        return any(kind is CallKind.RIGHT for _, kind in self.calls)

    def answered(self, usage: CompletionUsage | None) -> None:
        """Count a request to the model."""
        self.requests += 1
        if usage is not None:
            self.tokens += usage.total_tokens
            details = usage.prompt_tokens_details
            self.cached_tokens += (details and details.cached_tokens) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyModel:
    """A model behind an API compatible with OpenAI's chat completions."""

    client: AsyncOpenAI
    name: str
    seed: int
    max_tokens: int
    catalog: frozenset[str]
    """Names of all tools."""

    async def run(self, task: StudyTask, arm: Arm, host: StudyHost) -> Trial:
        """Ask for one task until a right tool is called, no tool is called, or `MAX_REQUESTS` were sent.

        Raises:
            openai.OpenAIError: the server cannot be reached or refuses the request.
            ModelError: its answer is no chat completion.
        """
        instructions = "\n\n".join(filter(None, (_INSTRUCTIONS, host.note)))
        messages: list[Any] = [{"role": "system", "content": instructions}, {"role": "user", "content": task.text}]
        listed = {each["name"] for each in host.definitions}
        trial = Trial(
            task=task.id, group=task.group, arm=arm.value, listed=len(listed), is_hidden=not task.right & listed
        )
        started = time.monotonic()
        while trial.requests < MAX_REQUESTS and not trial.is_right:
            answer = await self._ask(messages, host.definitions)
            trial.answered(answer.usage)
            calls = read_calls(answer.choices[0].message)
            if not calls:
                break
            messages.append(_to_message(calls, trial.requests))
            for place, call in enumerate(calls):
                name = f"{call.name} {_inner_name(call)}" if call.name == CALL_TOOL else call.name
                offered = {each["name"] for each in host.definitions}
                trial.calls.append((name, classify(call, offered, right=task.right, catalog=self.catalog)))
                result = await host.call(call.name, call.arguments)
                number = _call_id(trial.requests, place)
                messages.append({"role": "tool", "tool_call_id": number, "content": result})
        trial.seconds = round(time.monotonic() - started, 2)
        return trial

    async def _ask(self, messages: list[Any], definitions: Sequence[Definition]) -> ChatCompletion:
        try:
            answer = await self.client.chat.completions.create(
                model=self.name,
                messages=messages,
                tools=[_to_function(each) for each in definitions],
                temperature=0,
                seed=self.seed,
                max_tokens=self.max_tokens,
            )
        except ValueError as error:
            raise ModelError from error
        if not getattr(answer, "choices", None) or answer.choices[0].message is None:
            raise ModelError
        return answer


def classify(
    call: ModelCall, offered: Collection[str], *, right: Collection[str], catalog: Collection[str]
) -> CallKind:
    """Return what a call is, with the names in the list, those of right tools, and those of all tools."""
    if call.name not in offered:
        return CallKind.WRONG
    name = _inner_name(call) if call.name == CALL_TOOL else call.name
    if name in SEARCHES:
        return CallKind.SEARCH
    if name in right:
        return CallKind.RIGHT
    is_unknown = bool(name) and name not in catalog and name not in offered
    return CallKind.GUESS if call.name == CALL_TOOL and is_unknown else CallKind.WRONG


def _inner_name(call: ModelCall) -> str:
    """Return the name that a call gives to call_tool."""
    name = call.arguments.get("name")
    return name if isinstance(name, str) else ""


def read_calls(message: Any) -> list[ModelCall]:
    """Return the tool calls of a message: those of the API, else the one that a model wrote as JSON in its text.

    Small models leave out the marks around calls, so that servers return them as text. A call that the limit of tokens
    cuts off has its name, and the one that it gives to call_tool.
    """
    if message.tool_calls:
        return [ModelCall(each.function.name, _read_object(each.function.arguments)) for each in message.tool_calls]
    text = (message.content or "")[:_MAX_TEXT]
    for found in _objects(text):
        arguments = found.get("arguments", found.get("parameters", {}))
        if isinstance(found.get("name"), str):
            return [ModelCall(found["name"], arguments if isinstance(arguments, dict) else {})]
    name, *inner = _NAME.findall(text) or ("",)
    return [ModelCall(name, {"name": inner[0]} if inner else {})] if name else []


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects in a text."""
    end = 0
    for start in (match.start() for match in re.finditer(r"\{", text)):
        if start < end:
            continue
        try:
            found, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield found


def _read_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _to_function(definition: Definition) -> Any:
    function = {"name": definition["name"], "description": definition.get("description") or ""}
    return {"type": "function", "function": function | {"parameters": definition["inputSchema"]}}


def _to_message(calls: Sequence[ModelCall], request: int) -> Any:
    functions = [{"name": call.name, "arguments": json.dumps(call.arguments)} for call in calls]
    numbered = [
        {"id": _call_id(request, place), "type": "function", "function": function}
        for place, function in enumerate(functions)
    ]
    return {"role": "assistant", "content": "", "tool_calls": numbered}


def _call_id(request: int, place: int) -> str:
    return f"call_{request}_{place}"
