"""An agent of Google ADK: runs a block of the documentation with a scripted model; its interpreter is ADK's."""

from typing import Any

from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

from benchmarks.libraries.script import Script, run


class ScriptedModel(BaseLlm):  # type: ignore[misc]
    """Makes the calls of a script."""

    script: Script

    def __init__(self, script: Script) -> None:
        super().__init__(model="scripted", script=script)

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        sent = [str(content) for content in llm_request.contents]
        call = self.script.answer([*llm_request.tools_dict], sent)
        part = types.Part(text="All is done.")
        if call:
            part = types.Part.from_function_call(name=call.name, args=call.arguments)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


if __name__ == "__main__":
    run(ScriptedModel)
