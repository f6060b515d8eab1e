"""Models of agent libraries that call the tools of a script."""

from typing import Any

from agents import Model, ModelResponse, Tool, Usage
from agents.items import TResponseInputItem
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class ScriptedChat(GenericFakeChatModel):
    """LangChain's own fake, with tools."""

    shown: list[list[str]]

    def bind_tools(self, tools: Any, **_: Any) -> "ScriptedChat":
        self.shown.append([tool.name for tool in tools])
        return self


class ScriptedModel(Model):
    """Calls tools one after the other, the first of them a search, and then says that it is done."""

    def __init__(self, *calls: tuple[str, str]) -> None:
        self.calls = list(calls)
        self.shown: list[list[str]] = []

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002
        model_settings: Any,
        tools: list[Tool],
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        self.shown.append([tool.name for tool in tools])
        output: Any = ResponseOutputMessage(
            id="m",
            type="message",
            role="assistant",
            status="completed",
            content=[ResponseOutputText(type="output_text", text="all is ready", annotations=[])],
        )
        if self.calls:
            name, arguments = self.calls.pop(0)
            assert name in self.shown[-1]
            output = ResponseFunctionToolCall(type="function_call", call_id=name, name=name, arguments=arguments)
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError
