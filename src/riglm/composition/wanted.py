"""What the configuration asks for, where several parts go by it."""

import os

from riglm.domain.schemas.settings import Settings


def is_shared(settings: Settings) -> bool:
    """Whether other processes may go on with the sessions of this one."""
    return settings.state.kind != "memory"


def stands_in_the_way(settings: Settings) -> bool:
    """Whether riglm looks at lists and calls: for the filter, also if that may be switched on, or for its own voice."""
    return settings.filtering.is_on or settings.control.enabled or settings.knowledge.enabled


def is_silent() -> bool:
    """Whether what is about knowledge is not to be logged."""
    return os.environ.get("MCP_NO_LOG", "").lower() not in {"", "0", "false"}
