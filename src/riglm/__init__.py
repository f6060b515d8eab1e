"""riglm: a drop-in MCP proxy that records which tools are used and lists the tools that are needed next.

As a library, for agents that own their loop: `ToolSelector`.
"""

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all that is here
if TYPE_CHECKING:
    from riglm.application.selector.offer import UnusableToolError
    from riglm.application.selector.selecting_service import FoundTool, SearchResult, Selection, SelectionReason
    from riglm.application.selector.session import SelectorClosedError, ToolSession
    from riglm.domain.errors import ConfigurationError, RiglmError, UnusableInputError
    from riglm.tool_selector import USER_STORE, ToolSelector

__all__ = [
    "USER_STORE",
    "ConfigurationError",
    "FoundTool",
    "RiglmError",
    "SearchResult",
    "Selection",
    "SelectionReason",
    "SelectorClosedError",
    "ToolSelector",
    "ToolSession",
    "UnusableInputError",
    "UnusableToolError",
]

_HOMES = {
    "ConfigurationError": "domain.errors",
    "SearchResult": "application.selector.selecting_service",
    "FoundTool": "application.selector.selecting_service",
    "SelectionReason": "application.selector.selecting_service",
    "RiglmError": "domain.errors",
    "Selection": "application.selector.selecting_service",
    "SelectorClosedError": "application.selector.session",
    "ToolSelector": "tool_selector",
    "ToolSession": "application.selector.session",
    "USER_STORE": "tool_selector",
    "UnusableInputError": "domain.errors",
    "UnusableToolError": "application.selector.offer",
}


def __getattr__(name: str) -> object:
    """A public name, imported when it is first asked for: the commands start without what only agents need."""
    import importlib  # noqa: PLC0415  # nor do they need this

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
