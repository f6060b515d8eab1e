"""Waiting for what another thread or process does.

A test that reads what another thread or process writes (a store, a spool, a log, a metric, a list that is being
updated) waits for it: `wait_until` in functions, `await wait_until_async` in coroutines. Both return the first true
result of the condition, so that the test can go on with what it waited for:

    [session] = wait_until(store.list_sessions, "the session is stored")
    await wait_until_async(lambda: "is damaged" in home.log, "the damage is logged")

No test asserts that something happens within a time. `WAIT_SECONDS` is the timeout of everything a test waits for.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

WAIT_SECONDS: Final = 60
"""Seconds until a test that waits in vain fails: enough for a machine with six times as much work as processors."""

_FIRST_PAUSE_SECONDS: Final = 0.002
_LONGEST_PAUSE_SECONDS: Final = 0.1


def wait_until(condition: Callable[[], T | None], awaited: str = "") -> T:
    """Wait until a condition holds, and return its result; `awaited` says what the test waits for.

    Raises:
        AssertionError: it did not hold within `WAIT_SECONDS`. The message names `awaited`, by default the source of
            the condition, and the last result.
    """
    for pause in _pauses():
        if found := condition():
            return found
        time.sleep(pause)
    raise AssertionError(_message(condition, awaited, found))


async def wait_until_async(condition: Callable[[], T | Awaitable[T | None] | None], awaited: str = "") -> T:
    """Like `wait_until`, while the event loop runs; the condition may be a coroutine function."""
    for pause in _pauses():
        result = condition()
        found = await result if inspect.isawaitable(result) else result
        if found:
            return found
        await asyncio.sleep(pause)
    raise AssertionError(_message(condition, awaited, found))


def _pauses() -> Iterator[float]:
    deadline = time.monotonic() + WAIT_SECONDS
    pause = _FIRST_PAUSE_SECONDS
    yield pause
    while time.monotonic() < deadline:
        yield pause
        pause = min(pause * 1.3, _LONGEST_PAUSE_SECONDS)


def _message(condition: Callable[[], object], awaited: str, found: object) -> str:
    if not awaited:
        with contextlib.suppress(OSError, TypeError):
            awaited = inspect.getsource(condition).strip()
    return f"not within {WAIT_SECONDS} s: {awaited or condition!r}; last: {found!r:.2000}"
