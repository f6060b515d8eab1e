"""How riglm identifies itself to clients and servers."""

from functools import cache


def riglm_version() -> str:
    """The version of the installed riglm."""
    return server_info()["version"]


@cache
def server_info() -> dict[str, str]:
    """The `Implementation` that riglm sends to clients of several upstreams and to upstreams in its requests."""
    from importlib.metadata import version  # noqa: PLC0415  # costs 50 ms that most conversations need not pay

    return {"name": "riglm", "title": "riglm", "version": version("riglm")}
