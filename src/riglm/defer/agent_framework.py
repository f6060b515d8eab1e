"""Microsoft agent-framework: a context provider that gives each run the selected tools and a search for the others."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from agent_framework import (
    AgentSession,
    ContextProvider,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    SessionContext,
    SupportsAgentRun,
    tool,
)
from agent_framework.exceptions import MiddlewareException, UserInputRequiredException

from riglm.application.selector.session import ToolSession
from riglm.defer import record_call

_SOURCE: Final = "riglm"


class LearningMiddleware(FunctionMiddleware):
    """Learns from calls of a session's tools: `Agent(..., middleware=[LearningMiddleware(session)])`.

    Use it for MCP tools with `always_load=selection.names`. `LearnedTools` includes it.
    """

    def __init__(self, session: ToolSession[Any]) -> None:
        self._session = session

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Call a function, and learn from it."""
        name = context.function.name
        if name not in self._session:
            await call_next()
            return
        with record_call(self._session, name, passing=(MiddlewareException, UserInputRequiredException)):
            await call_next()


class LearnedTools(ContextProvider):
    """Gives each run the selected tools: `Agent(..., context_providers=[LearnedTools(session, tools)])`.

    If tools are hidden, the model also gets `find_tools`, which adds what it finds to the run. Give the tools here, and
    not to the agent. It learns from the calls.
    """

    def __init__(self, session: ToolSession[FunctionTool], tools: Sequence[FunctionTool]) -> None:
        super().__init__(_SOURCE)
        self._session = session
        self._tools = tools
        self._find_tools = tool(self._find, name="find_tools", approval_mode="never_require")

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Select the tools of a run by the messages that it begins with."""
        words = "\n".join(message.text for message in context.input_messages)
        selection = await self._session.aselect(words, tools=self._tools)
        context.extend_tools(_SOURCE, [*selection, *([self._find_tools] if selection.hidden else [])])
        context.extend_middleware(_SOURCE, LearningMiddleware(self._session))

    async def _find(self, query: str, ctx: FunctionInvocationContext) -> list[str]:
        """Find tools for what the given ones cannot do. They can be called from the next step on."""
        found = await self._session.asearch(query)
        if ctx.tools is not None:
            ctx.tools.extend(each.tool for each in found if each.tool not in ctx.tools)
        return [each.name for each in found]
