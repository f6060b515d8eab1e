"""A client's entry for a server, understood: what riglm makes of it, or why it has to stay."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from riglm.adapters.clients.dialect import FORMATS, UntranslatableError, VariableTranslator, variable_pattern
from riglm.domain.client_setup import ClientServer, ConfigLocation

_URLS: Final = ("url", "serverUrl", "httpUrl")
_TAKEN: Final = frozenset(
    {"type", "transport", "command", "args", "env", "environment", "cwd", "headers", "http_headers", *_URLS}
    | {"enabled", "disabled", "source", "bearer_token_env_var", "env_http_headers", "env_vars"}
)
_LIMITS: Final = (
    "disabledTools", "excludeTools", "includeTools", "enabledTools", "allowedTools", "disabled_tools", "enabled_tools",
    "tools", "default_tools_approval_mode",
)  # fmt: skip
_SIGN_IN: Final = (
    "oauth", "auth", "authProviderType", "headersHelper", "scopes", "oauth_resource", "oauth_client_id",
    "targetAudience", "targetServiceAccount",
)  # fmt: skip
_MAPS: Final = ("env", "environment", "headers", "http_headers", "env_http_headers")
_KINDS: Final = {"local": "stdio", "remote": "http"}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class _SkippedServerError(Exception):
    """The server cannot be moved behind riglm; the message gives the reason."""


def understood(place: ConfigLocation, name: str, entry: Any, home: Path, *, anyway: bool = False) -> ClientServer:
    """What riglm makes of an entry; `anyway` moves a server that may want its user to sign in."""
    if not isinstance(entry, Mapping):
        return ClientServer(name=name, obstacle="it is not written as a server")
    starts, url = _starts(entry), next((str(entry[key]) for key in _URLS if entry.get(key)), "")
    timeouts = FORMATS[place.client].timeouts
    seen = VariableTranslator(variable_pattern(place.client), home, place.project)
    try:
        _require_readable(entry)
        _require_movable(place.client, entry)
        definition = _definition(entry, starts, url, seen)
        if url and not starts and not anyway:
            _require_open(url, definition)
    except (_SkippedServerError, UntranslatableError) as error:
        return ClientServer(name=name, obstacle=str(error), starts=starts, url=url)
    taken = _TAKEN | timeouts.keys()
    passed = [each for each in _list(entry.get("env_vars")) if isinstance(each, str)]
    return ClientServer(
        name=name,
        definition=definition,
        variables=tuple(dict.fromkeys([*seen.variables, *passed])),
        waits={key: entry[key] for key in timeouts if isinstance(entry.get(key), int | float)},
        unused=tuple(key for key, value in entry.items() if key not in taken and value not in (None, [], {}, "")),
        starts=starts,
        url=url,
    )


def _starts(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command line, from any of its forms."""
    command = entry.get("command")
    if isinstance(command, Mapping):  # an older form of Zed
        return tuple(map(str, [command.get("path", ""), *_list(command.get("args"))]))
    if isinstance(command, list):
        return tuple(map(str, command))
    return (str(command), *map(str, _list(entry.get("args")))) if command else ()


def _require_readable(entry: Mapping[str, Any]) -> None:
    """Raise where something would be lost or turn into something else; what is null is as good as not there."""
    command = entry.get("command")
    if isinstance(command, list) and not _is_list_of_words(command):
        raise _SkippedServerError("its `command` is not a list of texts")
    for key in _URLS:
        if not isinstance(entry.get(key) or "", str):
            raise _SkippedServerError(f"its `{key}` is not a text")
    for part in (entry, command if isinstance(command, Mapping) else {}):
        if part.get("args") is not None and not _is_list_of_words(part["args"]):
            raise _SkippedServerError("its `args` is not a list of texts")
        for key in _MAPS:
            if part.get(key) is not None and not _is_map_of_words(part[key]):
                raise _SkippedServerError(f"its `{key}` does not give names with texts")


def _is_list_of_words(value: Any) -> bool:
    return isinstance(value, list) and not any(
        isinstance(each, Mapping | list | bool) or each is None for each in value
    )


def _is_map_of_words(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(isinstance(each, Mapping | list) for each in value.values())


def _require_movable(client: str, entry: Mapping[str, Any]) -> None:
    if entry.get("disabled") is True or entry.get("enabled") is False:
        raise _SkippedServerError("it is switched off")
    if not entry.get("command") and not any(entry.get(key) for key in _URLS):
        raise _SkippedServerError(
            "it has neither a command nor a URL: the client or an extension of it knows how to start it"
        )
    kind = entry.get("type", entry.get("transport"))
    if isinstance(kind, str) and kind not in FORMATS[client].kinds:
        raise _SkippedServerError(f"riglm does not support its kind, {kind!r}")
    for key in _LIMITS:
        if entry.get(key) and entry[key] != ["*"]:
            raise _SkippedServerError(f"`{key}` limits its tools, and riglm would not")
    for key in _SIGN_IN:
        if entry.get(key):
            raise _SkippedServerError(f"the client signs in to it (`{key}`), which riglm cannot do")
    if entry.get("envFile"):
        raise _SkippedServerError("it reads variables from a file (`envFile`), which riglm does not")
    if entry.get("sandboxEnabled") or entry.get("sandbox"):
        raise _SkippedServerError("the client runs it in a sandbox, which riglm does not")
    if any(not isinstance(each, str) for each in _list(entry.get("env_vars"))):
        raise _SkippedServerError("`env_vars` takes variables from elsewhere than this machine")


def _definition(
    entry: Mapping[str, Any], starts: tuple[str, ...], url: str, seen: VariableTranslator
) -> dict[str, Any]:
    if starts and url:
        raise _SkippedServerError("it has both a command and a URL")
    if starts:
        return _of_command(entry, starts, seen)
    kind = "http" if entry.get("httpUrl") else entry.get("type", entry.get("transport"))
    definition: dict[str, Any] = {}
    if isinstance(kind, str):
        definition["type"] = _KINDS.get(kind, "sse" if kind == "sse" else "http")
    elif entry.get("serverUrl") and not url.rstrip("/").endswith("/sse"):
        definition["type"] = "http"
    definition["url"] = seen(url, _unset_in_url)
    headers = {**_mapping(seen(entry.get("http_headers"))), **_mapping(seen(entry.get("headers")))}
    for header, variable in _mapping(entry.get("env_http_headers")).items():
        headers[header] = _variable(variable, seen)
    if token := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer {_variable(token, seen)}"
    return definition | ({"headers": headers} if headers else {})


def _of_command(entry: Mapping[str, Any], starts: tuple[str, ...], seen: VariableTranslator) -> dict[str, Any]:
    command = entry.get("command")
    env = command.get("env") if isinstance(command, Mapping) else entry.get("env", entry.get("environment"))
    definition: dict[str, Any] = {"command": seen(starts[0], _unset_in_path)}
    if starts[1:]:
        definition["args"] = seen(list(starts[1:]))
    if env:
        definition["env"] = {
            key: value if isinstance(value, str) else _as_text(value) for key, value in _mapping(seen(env)).items()
        }
    if entry.get("cwd"):
        definition["cwd"] = seen(entry["cwd"], _unset_in_path)
    return definition


def _unset_in_path(name: str, _before: str, _after: str) -> str:
    """Return a value that is no program and no directory and names the reason: an empty one would be invalid."""
    return f"{name} is not set"


def _unset_in_url(name: str, before: str, after: str) -> str:
    """Return an address with a host that does not exist and names the reason."""
    scheme, _, rest = before.rpartition("://")
    nowhere = f"{name.lower().replace('_', '-')}-is-not-set.invalid"
    if not scheme:
        return "http" if after.startswith("://") else f"http://{nowhere}"
    if "/" in rest or "?" in rest:
        return ""
    return "0" if ":" in rest else nowhere


def _require_open(url: str, definition: Mapping[str, Any]) -> None:
    """Clients sign in to servers of which their files say nothing but the address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _SkippedServerError("its URL cannot be read") from None
    if definition.get("headers") or parts.query or "@" in parts.netloc or parts.hostname in _LOOPBACK:
        return
    raise _SkippedServerError(
        "it may want you to sign in, which the client can do and riglm cannot; --include moves it anyway"
    )


def _variable(name: Any, seen: VariableTranslator) -> str:
    seen.variables[str(name)] = None
    return f"${{{name}:-}}"


def _as_text(value: Any) -> str:
    """A value of the environment as programs see it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _mapping(value: Any) -> dict[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
