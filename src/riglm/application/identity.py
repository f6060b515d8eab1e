"""What riglm says of itself where it speaks in its own name."""

from functools import cache


@cache
def server_info() -> dict[str, str]:
    """What riglm is as a server in front of several others, and as a client that asks on its own account."""
    from importlib.metadata import version  # noqa: PLC0415  # costs 50 ms that most conversations need not pay

    return {"name": "riglm", "title": "riglm", "version": version("riglm")}
