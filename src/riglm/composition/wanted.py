"""What the configuration asks for, where several parts go by it."""

from riglm.domain.schemas.settings import Settings


def is_shared(settings: Settings) -> bool:
    """Whether other processes may go on with the sessions of this one."""
    return settings.state.kind != "memory"


def stands_in_the_way(settings: Settings) -> bool:
    """Whether the filter looks at lists and calls, or may be switched on while riglm runs."""
    return settings.filtering.is_on or settings.control.enabled
