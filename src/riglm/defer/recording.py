"""The record of one tool call, for adapters that run the call."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from riglm.application.selector.session import ToolSession


@dataclass
class RecordedCall:
    """A tool call in flight. `failed` is its outcome, None if it has none yet: nothing is learned then."""

    failed: bool | None = False


@contextlib.contextmanager
def record_call(
    session: ToolSession[Any], tool: str, *, passing: tuple[type[Exception], ...] = ()
) -> Iterator[RecordedCall]:
    """Learn from the call that the block makes, which failed if the block raises.

    Args:
        session: the session that uses the tool.
        tool: its name.
        passing: exceptions that only put off the call.
    """
    call, started = RecordedCall(), time.monotonic()
    try:
        yield call
    except BaseException as error:
        call.failed = None if isinstance(error, passing) or not isinstance(error, Exception) else True
        raise
    finally:
        if call.failed is not None:
            session.used(tool, failed=call.failed, seconds=time.monotonic() - started)
