"""Where to go on in a list: what was given last, written so that nobody is tempted to make it by hand."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from riglm.domain.control import NotThere, Page

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def cursor_of(*key: object) -> str:
    """A cursor that leads behind the place of a key; its parts are what JSON knows."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def key_of(cursor: str, read: Callable[..., _Key]) -> _Key:
    """The key that a cursor holds, made by `read` of its parts.

    Raises:
        NotThere: the cursor leads nowhere.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parts: Any = json.loads(text)
        return read(*parts)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise NotThere("the cursor leads nowhere: take the next_cursor of an answer, or begin without one") from error


def page(items: Sequence[_Item], limit: int, place: Callable[[_Item], str]) -> Page[_Item]:
    """The first `limit` items, with a cursor when there are more; `place` gives the cursor behind an item."""
    given = tuple(items[:limit])
    return Page(items=given, next_cursor=place(given[-1]) if len(items) > limit else None)
