"""An agent of Strands Agents: runs a block of the documentation with a scripted model; its interpreter is Strands'."""

from typing import Any

from strands.models import Model

from benchmarks.libraries.script import Script, run


class ScriptedModel(Model):  # type: ignore[misc]
    """Makes the calls of a script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> Any:
        call = self.script.answer([tool["name"] for tool in tool_specs or ()], messages)
        yield {"messageStart": {"role": "assistant"}}
        if call:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call.id, "name": call.name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call.json}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "All is done."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if call else "end_turn"}}


if __name__ == "__main__":
    run(ScriptedModel)
