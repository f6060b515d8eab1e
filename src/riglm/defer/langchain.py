"""LangChain: middleware that has the provider's tool search defer what a session does not select."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ProviderToolSearchMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from riglm.application.selector.selecting_service import Selection
from riglm.application.selector.session import ToolSession
from riglm.defer import RecordedCall, alearn, learn, record_call

Answer = ModelResponse[Any] | AIMessage
Result = ToolMessage | Command[Any]


class LearnedToolSearch(AgentMiddleware[Any, Any, Any]):
    """A `ProviderToolSearchMiddleware` with the tools that a session hides: `middleware=[LearnedToolSearch(session)]`.

    It learns from the calls, and from the provider's searches. With a model whose provider has no tool search, a model
    call raises `ValueError` if a tool is hidden.
    """

    def __init__(self, session: ToolSession[BaseTool]) -> None:
        super().__init__()
        self._session = session

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> Answer:
        """Ask the model, with the tools deferred that are not selected."""
        selection = self._session.select(_text(request), tools=_tools(request))
        answer = _search(selection).wrap_model_call(request, handler)
        learn(self._session, _content(answer), calls=False)
        return answer

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Answer:
        """As `wrap_model_call`, without holding up the event loop."""
        selection = await self._session.aselect(_text(request), tools=_tools(request))
        answer = await _search(selection).awrap_model_call(request, handler)
        await alearn(self._session, _content(answer), calls=False)
        return answer

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]) -> Result:
        """Call a tool, and learn from it."""
        with record_call(self._session, request.tool_call["name"]) as call:
            return _outcome(call, handler(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """As `wrap_tool_call`, without holding up the event loop."""
        with record_call(self._session, request.tool_call["name"]) as call:
            return _outcome(call, await handler(request))


def _search(selection: Selection[BaseTool]) -> ProviderToolSearchMiddleware[Any, Any]:
    return ProviderToolSearchMiddleware(searchable_tools=[*selection.hidden])


def _tools(request: ModelRequest[Any]) -> list[BaseTool]:
    return [tool for tool in request.tools if isinstance(tool, BaseTool)]


def _text(request: ModelRequest[Any]) -> str:
    """The user's last words."""
    return next((message.text for message in reversed(request.messages) if isinstance(message, HumanMessage)), "")


def _content(answer: Answer) -> list[Any]:
    messages = [answer] if isinstance(answer, AIMessage) else answer.result
    return [part for message in messages if isinstance(message.content, list) for part in message.content]


def _outcome(call: RecordedCall, result: Result) -> Result:
    call.failed = isinstance(result, ToolMessage) and result.status == "error"
    return result
