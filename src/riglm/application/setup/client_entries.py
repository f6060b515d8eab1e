"""Servers as clients write them: variables, timeouts, and conversion of entries to and from riglm's.

And the configurations that riglm makes of servers that move behind it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from riglm.domain.client_setup import OAUTH, ClientServer, ConfigLocation, as_text, auth_of
from riglm.domain.client_support import FORMATS, ClientTimeout
from riglm.domain.schemas.problems import refusal

_OURS: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"

_PATTERNS: Final = {
    # Nothing is replaced: Claude Desktop, Codex, Zed.
    "none": re.compile(r"(?!)"),
    # `${VAR}` and `${VAR:-default}`: Claude Code.
    "shell": re.compile(rf"\$\{{(?P<name>{_NAME})(?::-(?P<default>[^}}]*))?\}}"),
    # `${env:VAR}`, and what only the editor knows: VS Code, Cursor, Windsurf, Cline.
    "editor": re.compile(rf"\$\{{env:(?P<name>{_NAME})\}}|\$\{{(?P<other>[^}}]*)\}}"),
    # `$VAR` and `${VAR}`: Gemini CLI, Qwen Code, Copilot CLI.
    "dollar": re.compile(rf"\$\{{(?P<name>{_NAME})(?::-(?P<default>[^}}]*))?\}}|\$(?P<bare>{_NAME})"),
    # `{env:VAR}`, and `{file:PATH}`: opencode.
    "braces": re.compile(rf"\{{env:(?P<name>{_NAME})\}}|\{{(?P<other>(?:env|file):[^}}]*)\}}"),
    # `$VAR` and `${VAR:-default}`, and commands and escapes, which only a shell expands: Crush.
    "bash": re.compile(
        rf"\$\{{(?P<name>{_NAME})(?::-(?P<default>[^}}$`\\]*))?\}}|\$(?P<bare>{_NAME})|(?P<other>\$\S+|\\[$`\\]|`)"
    ),
}
"""Variables by the syntax that a client replaces."""


class _ImmovableError(Exception):
    """The server cannot be moved behind riglm; the message gives the reason."""


@dataclass(slots=True)
class VariableTranslator:
    """Translates the texts of one server, and notes which variables they name.

    Each variable gets a default where it has none: that it is not set then fails the server that needs it, and not
    riglm with all others.
    """

    pattern: re.Pattern[str]
    home: Path
    project: Path | None
    variables: dict[str, None] = field(default_factory=dict)

    def __call__(self, value: Any, unset: Callable[[str, str, str], str] = lambda *_: "") -> Any:
        """The value with the variables of all its texts translated.

        `unset` makes the default of one without: from its name, and from what is written before and behind it.

        Raises:
            _ImmovableError: a text names what only the client knows, or holds what riglm would take for a variable.
        """
        if isinstance(value, str):
            return self._text(value, unset)
        if isinstance(value, list):
            return [self(item, unset) for item in value]
        if isinstance(value, Mapping):
            return {key: self(item, unset) for key, item in value.items()}
        return value

    def _text(self, text: str, unset: Callable[[str, str, str], str]) -> str:
        parts, place = [], 0
        for found in self.pattern.finditer(text):
            parts += [self._plain(text[place : found.start()]), self._variable(found, unset)]
            place = found.end()
        return "".join([*parts, self._plain(text[place:])])

    def _variable(self, found: re.Match[str], unset: Callable[[str, str, str], str]) -> str:
        groups = found.groupdict()
        if groups.get("other") is not None:
            return self._known_place(found)
        name = groups["name"] or groups["bare"]
        self.variables[name] = None
        default = groups.get("default") or unset(name, found.string[: found.start()], found.string[found.end() :])
        return f"${{{name}:-{default}}}"

    def _known_place(self, found: re.Match[str]) -> str:
        known = {"userHome": str(self.home), "pathSeparator": "/", "/": "/"}
        if self.project is not None:
            known |= {"workspaceFolder": str(self.project), "workspaceFolderBasename": self.project.name}
        if found["other"] not in known:
            raise _ImmovableError(f"it names {found.group()}, which only the client can fill in")
        return known[found["other"]]

    def _plain(self, text: str) -> str:
        if found := _OURS.search(text):
            raise _ImmovableError(f"the client takes {found.group()} as it is written, and riglm would replace it")
        return text


def riglm_entry(client: str, words: Sequence[str], variables: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return a client's entry for a command line; `variables` are passed to the command where the client does not."""
    form = FORMATS[client]
    passed = {} if form.passes_all or not form.variable else {name: form.variable % name for name in variables}
    env = {**passed, **env}
    if form.entry == "opencode":
        entry: dict[str, Any] = {"type": "local", "command": list(words), "enabled": True}
        return entry | ({"environment": env} if env else {}) | dict(form.members)
    entry = {"type": "stdio"} if form.entry == "typed" else {}
    entry |= {"command": words[0], "args": list(words[1:])} | ({"env": env} if env else {})
    entry |= {form.variable_names: sorted(variables)} if form.variable_names and variables else {}
    return entry | dict(form.members)


_URLS: Final = ("url", "serverUrl", "httpUrl")
_TAKEN: Final = frozenset(
    {"type", "transport", "command", "args", "env", "environment", "cwd", "headers", "http_headers", *_URLS}
    | {"enabled", "disabled", "source", "bearer_token_env_var", "env_http_headers", "env_vars", *OAUTH}
)
_LIMITS: Final = (
    "disabledTools", "excludeTools", "includeTools", "enabledTools", "allowedTools", "disabled_tools", "enabled_tools",
    "tools", "default_tools_approval_mode",
)  # fmt: skip
_SIGN_IN: Final = ("authProviderType", "headersHelper", "oauth_resource", "targetAudience", "targetServiceAccount")
_CREDENTIALS: Final = ("headers", "http_headers", "env_http_headers", "bearer_token_env_var")
_MAX_TIMEOUT: Final = 1e12
_MAX_SECONDS: Final = 31_536_000
"""The longest timeout that riglm's configuration takes."""

_MAPS: Final = ("env", "environment", "headers", "http_headers", "env_http_headers")
_KINDS: Final = {"local": "stdio", "remote": "http"}


def parse_entry(place: ConfigLocation, name: str, entry: Any, home: Path, *, include: bool = False) -> ClientServer:
    """Return what riglm makes of an entry; `include` moves a server even if it requires a sign-in."""
    if not isinstance(entry, Mapping):
        return ClientServer(name=name, obstacle="it is not written as a server")
    starts, url = _starts(entry), next((str(entry[key]) for key in _URLS if entry.get(key)), "")
    form = FORMATS[place.client]
    seen = VariableTranslator(_PATTERNS[form.variables], home, place.project)
    try:
        _require_readable(entry)
        _require_movable(place.client, entry)
        definition = _definition(entry, starts, url, seen)
        signs_in = not include and not starts and _may_require_sign_in(entry, url)
    except _ImmovableError as error:
        return ClientServer(name=name, obstacle=str(error), starts=starts, url=url)
    waits = timeouts_of(entry, form.timeouts)
    if seconds := _seconds(waits, form.timeouts):
        definition["timeouts"] = seconds
    taken = _TAKEN | {key.partition(".")[0] for key in form.timeouts} | form.members.keys()
    passed = [each for each in _list(entry.get("env_vars")) if isinstance(each, str)]
    return ClientServer(
        name=name,
        definition=definition,
        variables=tuple(dict.fromkeys([*seen.variables, *passed])),
        waits=waits,
        unused=tuple(key for key, value in entry.items() if key not in taken and value not in (None, [], {}, "")),
        starts=starts,
        url=url,
        signs_in=signs_in,
    )


def timeouts_of(entry: Mapping[str, Any], timeouts: Mapping[str, ClientTimeout]) -> dict[str, float]:
    """Return the timeouts of an entry that have an effect in the client, in its units."""
    found: dict[str, float] = {}
    for key, timeout in timeouts.items():
        outer, _, inner = key.partition(".")
        value = entry.get(outer)
        if inner:
            value = value.get(inner) if isinstance(value, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not 0 < value < _MAX_TIMEOUT or value < timeout.minimum:
            continue
        if not timeout.other_form_of:
            found[key] = value
        elif timeout.other_form_of not in found:
            found[timeout.other_form_of] = _number(value * timeout.unit / timeouts[timeout.other_form_of].unit)
    return found


def _seconds(waits: Mapping[str, float], timeouts: Mapping[str, ClientTimeout]) -> dict[str, float]:
    """Return the same as timeouts of riglm's configuration."""
    found: dict[str, float] = {}
    for key, value in waits.items():
        seconds = min(_number(value * timeouts[key].unit), _MAX_SECONDS)
        for name in timeouts[key].covers:
            found[name] = max(seconds, found.get(name, 0))
    return found


def _number(value: float) -> float:
    """The value to the millisecond, without a fraction of zero."""
    rounded = max(round(value, 3), 0.001)
    return int(rounded) if rounded.is_integer() else rounded


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
        raise _ImmovableError("its `command` is not a list of texts")
    for key in _URLS:
        if not isinstance(entry.get(key) or "", str):
            raise _ImmovableError(f"its `{key}` is not a text")
    for part in (entry, command if isinstance(command, Mapping) else {}):
        if part.get("args") is not None and not _is_list_of_words(part["args"]):
            raise _ImmovableError("its `args` is not a list of texts")
        for key in _MAPS:
            if part.get(key) is not None and not _is_map_of_words(part[key]):
                raise _ImmovableError(f"its `{key}` does not give names with texts")


def _is_list_of_words(value: Any) -> bool:
    return isinstance(value, list) and not any(
        isinstance(each, Mapping | list | bool) or each is None for each in value
    )


def _is_map_of_words(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(isinstance(each, Mapping | list) for each in value.values())


def _require_movable(client: str, entry: Mapping[str, Any]) -> None:
    if entry.get("disabled") is True or entry.get("enabled") is False:
        raise _ImmovableError("it is disabled")
    if not entry.get("command") and not any(entry.get(key) for key in _URLS):
        raise _ImmovableError(
            "it has neither a command nor a URL: the client or an extension of it knows how to start it"
        )
    kind = entry.get("type", entry.get("transport"))
    if isinstance(kind, str) and kind not in FORMATS[client].kinds:
        raise _ImmovableError(f"riglm does not support its kind, {kind!r}")
    for key in _LIMITS:
        if entry.get(key) and entry[key] != ["*"]:
            raise _ImmovableError(f"`{key}` limits its tools, and riglm would not")
    for key in _SIGN_IN:
        if entry.get(key):
            raise _ImmovableError(f"the client signs in to it with `{key}`, which riglm does not support")
    if entry.get("envFile"):
        raise _ImmovableError("it reads variables from a file (`envFile`), which riglm does not")
    if entry.get("sandboxEnabled") or entry.get("sandbox"):
        raise _ImmovableError("the client runs it in a sandbox, which riglm does not")
    if any(not isinstance(each, str) for each in _list(entry.get("env_vars"))):
        raise _ImmovableError("`env_vars` takes variables from elsewhere than this machine")


def _definition(
    entry: Mapping[str, Any], starts: tuple[str, ...], url: str, seen: VariableTranslator
) -> dict[str, Any]:
    if starts and url:
        raise _ImmovableError("it has both a command and a URL")
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
    headers = {name: as_text(value) for name, value in headers.items()}
    for header, variable in _mapping(entry.get("env_http_headers")).items():
        headers[header] = _variable(variable, seen)
    if token := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer {_variable(token, seen)}"
    auth, others = auth_of(entry)
    for name in others:
        raise _ImmovableError(f"the client signs in to it with `{name}`, which riglm does not support")
    auth = seen(auth)
    return definition | ({"headers": headers} if headers else {}) | ({"auth": auth} if auth else {})


def _of_command(entry: Mapping[str, Any], starts: tuple[str, ...], seen: VariableTranslator) -> dict[str, Any]:
    command = entry.get("command")
    env = command.get("env") if isinstance(command, Mapping) else entry.get("env", entry.get("environment"))
    definition: dict[str, Any] = {"command": seen(starts[0], _unset_in_path)}
    if starts[1:]:
        definition["args"] = seen(list(starts[1:]))
    if env:
        definition["env"] = {key: as_text(value) for key, value in _mapping(seen(env)).items()}
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


def _may_require_sign_in(entry: Mapping[str, Any], url: str) -> bool:
    """True without credentials in the entry, and if the client signs in."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _ImmovableError("its URL cannot be read") from None
    has_credentials = parts.query or "@" in parts.netloc or any(entry.get(key) for key in _CREDENTIALS)
    return not has_credentials or any(entry.get(key) for key in OAUTH)


def _variable(name: Any, seen: VariableTranslator) -> str:
    seen.variables[str(name)] = None
    return f"${{{name}:-}}"


def _mapping(value: Any) -> dict[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_SERVERS: Final = "mcpServers"
_BLOCK: Final = re.compile(rf"(?m)^{_SERVERS}:[ \t]*(?:#.*)?\r?\n(?=([ \t]*))")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


def read_servers(file: Path, content: bytes | None) -> dict[str, Any]:
    """Return the servers in a version of a configuration.

    Raises:
        ConfigurationError: it is no configuration.
    """
    try:
        values = {} if content is None else yaml.safe_load(content.decode("utf-8-sig")) or {}
    except (UnicodeDecodeError, yaml.YAMLError):
        raise refusal(str(file), "", "this is not YAML", "correct it") from None
    if not isinstance(values, dict) or "upstream" in values:
        raise refusal(str(file), "", "it holds no `mcpServers`", "rename it, and run this again")
    servers = values.get(_SERVERS) or {}
    return servers if isinstance(servers, dict) else {}


def add_servers(content: bytes | None, servers: Mapping[str, Mapping[str, Any]], head: str) -> bytes:
    """Return a configuration with servers added; a new one begins with the comment lines of `head`, in shadow mode.

    Raises:
        ConfigurationError: it cannot be changed faithfully.
    """
    added = {name: dict(definition) for name, definition in servers.items()}
    if content is None:
        return (head + _dump({"filtering": {"mode": "shadow"}, _SERVERS: added})).encode()
    text = content.decode("utf-8-sig")
    values = yaml.safe_load(text) or {}
    block = _BLOCK.search(text)
    if block is not None:
        lines = _dump(added).splitlines(keepends=True)
        step = block[1] or "  "
        new = text[: block.end()] + "".join(step + line for line in lines) + text[block.end() :]
    else:
        new = text + ("" if text.endswith("\n") else "\n") + _dump({_SERVERS: added})
    wanted = {**values, _SERVERS: {**added, **(values.get(_SERVERS) or {})}}
    try:
        is_right = (block is not None or _SERVERS not in values) and yaml.safe_load(new) == wanted
    except yaml.YAMLError:
        is_right = False
    if not is_right:
        what = f"it was edited so that riglm cannot add {', '.join(added)} to it"
        fix = f"write `{_SERVERS}:` there in a separate line, with the servers indented below it"
        raise refusal("riglm's configuration", "", what, fix)
    return content[: len(content) - len(text.encode())] + new.encode()


class _Dumper(yaml.SafeDumper):
    """Writes texts in one line, as JSON does, and equal values out, each in its place."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if _PLAIN.fullmatch(data) else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def _dump(values: Mapping[str, Any]) -> str:
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
