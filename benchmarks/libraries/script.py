"""The script of a model, and the program that runs a block of the documentation with it, in the library's environment.

It reads from stdin what to run and which calls the model makes, and writes to stdout which tools the model got.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model."""

    name: str
    arguments: dict[str, Any]

    @property
    def id(self) -> str:
        """The id of the call."""
        return f"call_{self.name}"

    @property
    def json(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.arguments)


@dataclass
class Script:
    """The calls that a model makes one after the other, and what it got: tool names and messages of each request."""

    calls: list[Call]
    tools: list[list[str]] = field(default_factory=list)
    messages: str = ""

    def answer(self, tools: list[str], messages: object) -> Call | None:
        """Note a request; return the next call, None after the last."""
        self.tools.append(tools)
        self.messages = str(messages)
        return self.calls.pop(0) if self.calls else None


def functions() -> list[Callable[..., str]]:
    """Thirty functions, of which one reads the log of a build."""
    return [_function("read_build_log"), *(_function(f"paint_fence_{number}") for number in range(29))]


def _function(name: str) -> Callable[..., str]:
    def function(about: str) -> str:
        return f"{name} is done: {about}"

    function.__name__ = name
    function.__doc__ = f"{name.replace('_', ' ').capitalize()}."
    return function


def run(model: Callable[[Script], object]) -> None:
    """Run the block."""
    asked = json.load(sys.stdin)
    if asked["without_riglm"]:
        sys.modules["riglm"] = None  # type: ignore[assignment]
    script = Script([Call(*call) for call in asked["calls"]])
    exec(compile(asked["block"], "library.md", "exec"), {"functions": functions(), "model": model(script)})
    print("\n" + json.dumps({"tools": script.tools, "messages": script.messages}))
