"""A stage: one thing that riglm does with requests, and with their replies."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from riglm.domain.jsonrpc import Message

if TYPE_CHECKING:
    from riglm.application.proxy.parts import ProxyParts
    from riglm.application.proxy.request import Request

Outcome = Message | None | Coroutine[Any, Any, Message | None]
"""What a stage gives: a reply, nothing, or a coroutine that gives either once what it waits for is there."""


class Stage:
    """Defines `before`, `after`, or both. A stage that raises is logged.

    Then the request goes on as it is, unless `fails_closed`: then its reply is an error.
    """

    methods: ClassVar[frozenset[str] | None] = None
    """The methods that pass this stage; None for all."""

    fails_closed: ClassVar[bool] = False

    def __init__(self, parts: "ProxyParts") -> None:
        """Take what the stage works with."""

    @classmethod
    def is_used(cls, parts: "ProxyParts") -> bool:  # noqa: ARG003  # that of most stages
        """Return False if the stage would do nothing with these parts."""
        return True

    def before(self, request: "Request") -> Outcome:
        """Process a request on its way in; a reply ends the way in here."""
        return None

    def after(self, request: "Request", reply: Message | None) -> Outcome:
        """Return the reply to send in place of this one; `reply` is None if the request was cancelled."""
        return reply


class Step(NamedTuple):
    """What a request of one method passes next: `before` of a stage; `passed` are the stages so far, latest first."""

    before: "Callable[[Request], Outcome] | None"
    passed: tuple[Stage, ...]
    stage: Stage


def plan(stages: "list[Stage]", method: str) -> tuple[Step, ...]:
    """Return the steps of a method; `before` and `after` that a stage inherits unchanged are not called."""
    steps: list[Step] = []
    passed: tuple[Stage, ...] = ()
    for stage in stages:
        if stage.methods is None or method in stage.methods:
            if type(stage).after is not Stage.after:
                passed = (stage, *passed)
            before = stage.before if type(stage).before is not Stage.before else None
            steps.append(Step(before, passed, stage))
    return tuple(steps)
