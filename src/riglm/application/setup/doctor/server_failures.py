"""What went wrong with a server, by what it wrote or by riglm's reason, and what to do about it."""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from riglm.domain.redaction import mask_command
from riglm.domain.upstream import UpstreamSpec

_MAX_SAID: Final = 3
_NODE: Final = "install Node.js, which brings it: https://nodejs.org"
_UV: Final = "install uv, which brings it: https://docs.astral.sh/uv"
_DOCKER: Final = "install Docker: https://docs.docker.com/get-docker"
_INSTALLED_WITH: Final = {
    "npx": _NODE,
    "npm": _NODE,
    "node": _NODE,
    "bunx": "install Bun, which brings it: https://bun.sh",
    "uvx": _UV,
    "uv": _UV,
    "pipx": "install pipx: https://pipx.pypa.io",
    "docker": _DOCKER,
    "podman": "install Podman: https://podman.io",
    "python": "name the interpreter that there is, often `python3`",
    "deno": "install Deno: https://deno.com",
}


class ConfiguredServer(NamedTuple):
    """A server, and the key under which it is configured."""

    spec: UpstreamSpec
    key: str


_Signs = tuple[tuple[str, str | Callable[[ConfiguredServer, str], str]], ...]
"""Patterns that identify a kind of failure, and the fixes to suggest."""


def how_to_install(program: str) -> str:
    """Return how to install a program that was not found."""
    name = PurePath(program).name
    known = _INSTALLED_WITH.get(name, f"install {name}")
    return f"{known}; or give its full path as `command`: a client may start riglm with a shorter PATH than yours"


def _variable(server: ConfiguredServer, words: str) -> str:
    """Return the fix for a variable that a server misses: it may be configured, and come out empty."""
    place, env = f"{server.key}.env", server.spec.env
    named = [name for name in env if re.search(rf"\b{re.escape(name)}\b", words, re.IGNORECASE)]
    if not named:
        return f"give it the variable in `{place}`"
    if env[named[0]]:
        return f"correct `{place}.{named[0]}`"
    return f"`{place}.{named[0]}` is empty: set the variable that it comes from, here and where the client starts riglm"


def _token(server: ConfiguredServer, reason: str) -> str:
    place = server.key
    if server.spec.has_credentials:
        return f"the token was refused: set a valid one in `{place}.auth.token`, or in the variable that it comes from"
    if "401" in reason:
        return f"riglm login {server.spec.name}; for a fixed token, set `{place}.auth: {{token: ${{VARIABLE}}}}`"
    return f"set `{place}.auth: {{token: ${{VARIABLE}}}}`, or sign in with `riglm login {server.spec.name}`"


def _by_hand(server: ConfiguredServer, _: str) -> str:
    return f"run it by hand to see what it lacks: {' '.join(mask_command(server.spec.command))}"


def _first_look(server: ConfiguredServer) -> str:
    return _by_hand(server, "") if server.spec.kind == "stdio" else "see the server's own log"


_IN_OUTPUT: Final[_Signs] = (
    (r"content-length", "have it read and write one line of JSON a message, as MCP's stdio transport requires"),
    (r"cannot connect to the docker daemon|docker daemon is not running", "start Docker"),
    (r"\bE404\b|404 not found - get|no matching version|not found in the package registry|No solution found",
          "correct the name of the package in `args`"),
    (r"\bEAI_AGAIN\b|\bENOTFOUND\b|Temporary failure in name resolution|dns error",
          "connect to the network, or install the package beforehand: its runner downloads it at the first start"),
    (r"EADDRINUSE|address already in use", "end the other process that has its port: one copy of it runs already"),
    (r"ModuleNotFoundError|Cannot find module|ERR_MODULE_NOT_FOUND", "install what it needs, or correct `args`"),
    (r"\b(missing|required|not set|undefined)\b.{0,60}\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|api.?key|token)\b"
          r"|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|api.?key|token)\b.{0,60}\b(missing|required|not set|undefined)\b",
          _variable),
    (r"permission denied|EACCES", "let the user who runs riglm do what it says"),
)  # fmt: skip
_IN_REASONS: Final[_Signs] = (
    (r"no further process", "end processes that are not needed, or raise the limit (`ulimit -u`)"),
    (r"^cannot run .*(no such file|not found)", lambda server, _: how_to_install(server.spec.command[0])),
    (r"^cannot run .*permission", lambda server, _: f"make it executable: chmod +x {server.spec.command[0]}"),
    (r"HTTP 30\d and redirects", "set `url` to where the server redirects, if you trust that"),
    (r"HTTP 40[13]\b", _token),
    (r"WRONG_VERSION_NUMBER", "write http:// in `url`: the server does not use TLS on this port"),
    (r"CERTIFICATE_VERIFY_FAILED|certificate",
          "name the authority's certificates in the variable SSL_CERT_FILE, NODE_EXTRA_CA_CERTS or REQUESTS_CA_BUNDLE, "
          "here and where the client starts riglm, or correct the host in `url`"),
    (r"\bssl\b|\btls\b", "check that the server uses TLS on this port, or write http:// in `url`"),
    (r"HTTP 40[456]\b|no JSON-RPC|no endpoint",
          "correct the path in `url` (often /mcp), or set `type: sse` for a server of the older kind"),
    (r"Name or service not known|nodename nor servname|getaddrinfo|No address", "correct the host in `url`"),
    (r"refused|Connect call failed", "start it, or correct the port in `url`"),
    (r"did not take the connection", "see that it runs and no firewall is in the way, or raise timeouts.connect"),
    (r"HTTP 429|HTTP 5\d\d", "see the server's own log; try again later"),
    (r"did not (answer|give)",
          lambda server, _: f"{_first_look(server)}; if it is only slow, raise {server.key}.timeouts.initialize"),
    (r"exited|ended by signal|closed its", _by_hand),
)  # fmt: skip


def diagnose(server: ConfiguredServer, reason: str, stderr: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the most informative of the last lines of a failed server's standard error, and the fix to suggest.

    The fix is found by these lines, or else by the reason that riglm has.
    """
    lines = tuple(line for line in dict.fromkeys(stderr) if line.strip())
    last = lines[-_MAX_SAID:]
    for pattern, fix in _IN_OUTPUT:
        found = next((line for line in lines if re.search(pattern, line, re.IGNORECASE)), None)
        if found is not None:
            said = last if found in last else (found, *last[1:])
            return said, fix if isinstance(fix, str) else fix(server, found)
    for pattern, fix in _IN_REASONS:
        if re.search(pattern, reason, re.IGNORECASE):
            return last, fix if isinstance(fix, str) else fix(server, reason)
    return last, _first_look(server)
