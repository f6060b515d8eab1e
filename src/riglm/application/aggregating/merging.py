"""What several servers say of themselves, said as one."""

from typing import Any


def merged(one: Any, other: Any) -> Any:
    """Two plain values as one: objects joined member by member, arrays one after the other, either truth is true.

    Of anything else the later one counts.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{key: merged(one[key], value) if key in one else value for key, value in other.items()}}
    if isinstance(one, list) and isinstance(other, list):
        return one + [value for value in other if value not in one]
    if isinstance(one, bool) and isinstance(other, bool):
        return one or other
    return other if other is not None else one
