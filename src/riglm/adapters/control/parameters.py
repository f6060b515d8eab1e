"""Parameters that several operations of the control API take."""

from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import BeforeValidator

from riglm.application.control.running_proxy import RunningProxy
from riglm.domain.schemas.control_api import TimeParameter


async def _get_proxy(request: Request) -> RunningProxy:
    proxy: RunningProxy = request.app.state.proxy
    return proxy


def _parse_flag(value: object) -> bool:
    if value not in ("true", "false", True, False):
        raise ValueError("write true or false")
    return value in ("true", True)


Proxy = Annotated[RunningProxy, Depends(_get_proxy)]
"""The proxy that the operation reads or changes."""

Flag = Annotated[bool, BeforeValidator(_parse_flag)]
"""A boolean, with one spelling."""

Since = Annotated[TimeParameter, Query(description="Only what happened since then.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=512, pattern="^[A-Za-z0-9_=.:~-]+$", description="A `next_cursor`, to go on from there."),
]
