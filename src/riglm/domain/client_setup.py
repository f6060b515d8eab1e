"""Where clients keep their servers, and what riglm changed there."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from riglm.domain.redaction import RUNNER_VERBS

if TYPE_CHECKING:
    from riglm.domain.schemas.server import ServerSettings

_PYTHON: Final = re.compile(r"python[\d.]*|pypy[\d.]*|py")
_UNPACKERS: Final = frozenset({"uvx", "uv", "pipx"})
_WRAPPERS: Final = frozenset({"env", "cmd"})
_PACKAGE: Final = re.compile(r"riglm(?:\[[\w,-]*\])?(?:(?:@|==).*)?")
_TAKING_A_VALUE: Final = frozenset(
    {"--from", "--with", "--spec", "--python", "-p", "--directory", "--project", "--index-url", "--extra", "-W", "-X"}
)


def starts_riglm(words: Sequence[str]) -> bool:
    """True if a command line starts riglm: by its name, as a module of Python, or by a package runner.

    A word `riglm` among the arguments of another program, a directory for instance, does not count.
    """
    if not words:
        return False
    program, rest = _name(words[0]), list(words[1:])
    if program in _WRAPPERS:
        return starts_riglm(list(dropwhile(lambda word: "=" in word or word.startswith(("-", "/")), rest)))
    if _PYTHON.fullmatch(program):
        options = _before_the_first_argument(rest)
        return rest[options : options + 2] == ["-m", "riglm"]
    if program in _UNPACKERS:
        return _unpacked(rest)
    return program == "riglm"


def _unpacked(rest: Sequence[str]) -> bool:
    """True if what follows `uvx`, `uv` or `pipx` is riglm, perhaps started by a Python of a separate environment."""
    while rest:
        rest = rest[_before_the_first_argument(rest) :]
        if not rest or rest[0] not in RUNNER_VERBS:
            break
        rest = rest[1:]
    return bool(rest) and (_PACKAGE.fullmatch(rest[0]) is not None or starts_riglm(rest))


def _before_the_first_argument(words: Sequence[str]) -> int:
    """How many words are options and their values; `-m` is what is looked for, and none of them."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in _TAKING_A_VALUE else 1
    return at


def _name(program: str) -> str:
    return program.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


ENTRY: Final = "riglm"
"""What riglm is called among the servers that a user has everywhere."""

_MAX: Final = 48
_MAX_FOLDER_LENGTH: Final = 16
_RESERVED: Final = re.compile(
    r"set_context|search_available_tools|call_tool|index_status|mark_tool|riglm", re.IGNORECASE
)
_NO_ENTRY: Final = re.compile(r"[^A-Za-z0-9-]+")
_NO_SLUG: Final = re.compile(r"[^A-Za-z0-9._-]+|_(?=_)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLocation:
    """One set of servers in one file of one client.

    `path` leads to the servers in the file. `project` is the directory whose work alone they are for, if there is one.
    `name` is what a place is called of which there is only one.
    """

    client: str
    file: Path
    path: tuple[str, ...]
    project: Path | None = None
    name: str = ""

    @property
    def key(self) -> str:
        """A short name of the place that no other one has, good for the name of a file."""
        if self.name:
            return self.name
        label = re.sub(r"[^A-Za-z0-9_-]+", "-", (self.project or self.file.parent).name).strip("-")[:24]
        whole = "\0".join([str(self.file), *self.path])
        return f"{self.client}.{label or 'place'}-{sha256(whole.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

    @property
    def entry(self) -> str:
        """The name of riglm in a client's file, if it is free: clients merge several files by these names.

        It is short: clients put it before the names of tools, and those may not be long.
        """
        if self.project is None:
            return ENTRY
        folder = _NO_ENTRY.sub("-", self.project.name)[:_MAX_FOLDER_LENGTH].strip("-") or "project"
        return f"{ENTRY}-{folder}{'-local' if self.path[0] == 'projects' else ''}"

    def is_read_with(self, other: "ConfigLocation") -> bool:
        """Whether the client may put the servers of both together, so that of two with one name only one is there."""
        if self.client != other.client:
            return False
        if self.project is None or other.project is None:
            return self.project != other.project or self.file.parent == other.file.parent
        return self.project.is_relative_to(other.project) or other.project.is_relative_to(self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServer:
    """One server as a client has it, and what riglm makes of it.

    `definition` is the server in riglm's configuration, None if it must stay; `obstacle` is the reason. `variables` are
    those that the definition names, `waits` is the client's timeout setting for the server, `unused` are the keys
    without effect in riglm. `starts` is the command line that the client runs. `signs_in` is True if the server may
    require a sign-in.
    """

    name: str
    definition: Mapping[str, Any] | None = None
    obstacle: str = ""
    variables: tuple[str, ...] = ()
    waits: Mapping[str, float] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    url: str = ""
    signs_in: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSetup:
    """riglm in front of a client's servers: what was written where, and how to take it back.

    `servers` are the names of those that were moved, as the client had them, with their names behind riglm. `before`
    names the copy of the client's file as it was, `after` and `configured` are digests of the client's file and of
    riglm's configuration as riglm wrote them; the latter is empty if it had been edited before.
    """

    place: ConfigLocation
    configuration: Path
    entry: str
    command: tuple[str, ...]
    servers: Mapping[str, str]
    before: str
    after: str
    configured: str
    at: float = 0.0

    @property
    def client(self) -> str:
        """The client's name, as `--client` takes it."""
        return self.place.client

    @property
    def file(self) -> Path:
        """The client's file."""
        return self.place.file


@dataclass(frozen=True, slots=True, kw_only=True)
class RiglmServerEntry:
    """An entry of riglm among the servers of a client; or a file that could not be read.

    `may_defer` is True if the client may defer the tools of this entry, and would not by another setting.
    """

    client: str
    file: Path
    entry: str = ""
    command: tuple[str, ...] = ()
    url: str = ""
    fault: str = ""
    may_defer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedServer:
    """A server that goes behind riglm: its name in the client's file, and behind riglm."""

    name: str
    behind: str
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file before and after; None where there is none."""

    file: Path
    before: bytes | None
    after: bytes | None

    @property
    def changes(self) -> bool:
        """True if the file changes."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupPlan:
    """What `riglm init` or `riglm undo` would change, or the `fault` for which it cannot."""

    place: ConfigLocation
    notes: tuple[str, ...] = ()
    fault: str = ""
    rewritings: tuple[FileChange, ...] = field(default=(), repr=False)

    @property
    def changes(self) -> bool:
        """Whether anything would be written."""
        return any(each.changes for each in self.rewritings)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan(SetupPlan):
    """What `riglm init` would do at one place.

    `stays` are the servers that stay where they are, and why. `sign_ins` are those of them that stay only until riglm
    has an account, by their names behind riglm.
    """

    configuration: Path
    entry: str = ENTRY
    command: tuple[str, ...] = ()
    moves: tuple[MovedServer, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)
    sign_ins: "Mapping[str, ServerSettings]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan(SetupPlan):
    """What `riglm undo` would do to one file: which servers return, and whether it becomes again the file it was.

    `is_missing` is True if its folder does not exist any more, so that neither returns.
    """

    installations: tuple[ClientSetup, ...]
    returns: tuple[str, ...] = ()
    is_exact: bool = True
    is_missing: bool = False


def is_riglm(server: ClientServer) -> bool:
    """Whether a client's server is riglm itself."""
    return starts_riglm(server.starts)


def entry_of(servers: Iterable[ClientServer], configuration: Path) -> str | None:
    """Return the name of riglm with this configuration among a client's servers; None if there is none."""
    return next((each.name for each in servers if is_riglm(each) and str(configuration) in each.starts), None)


def digest(content: bytes) -> str:
    """Return what distinguishes one content of a file from another."""
    return sha256(content).hexdigest()


def name_behind(name: str, taken: Collection[str]) -> str:
    """Return a server's name behind riglm: the client's name for it, if riglm accepts it and no other server has it."""
    slug = _NO_SLUG.sub("-", name).replace("-_", "_").strip("._-")[:_MAX].strip("._-") or "server"
    if _RESERVED.fullmatch(slug):
        slug += "-server"
    others = {each.lower() for each in taken}
    number, found = 1, slug
    while found.lower() in others:
        number += 1
        found = f"{slug[: _MAX - 4]}-{number}"
    return found


def names_behind(names: Iterable[str]) -> dict[str, str]:
    """Return the names of servers behind riglm by the client's names. Names that riglm accepts are assigned first."""
    found: dict[str, str] = {}
    rest = []
    for name in names:
        if name_behind(name, found.values()) == name:
            found[name] = name
        else:
            rest.append(name)
    for name in rest:
        found[name] = name_behind(name, found.values())
    return found


OAUTH: Final = ("oauth", "auth", "scopes", "oauth_client_id")
"""Keys of a client's entry that are about its sign-in."""

_OAUTH_KEYS: Final = {
    "clientId": "client_id", "client_id": "client_id", "CLIENT_ID": "client_id", "oauth_client_id": "client_id",
    "clientSecret": "client_secret", "client_secret": "client_secret", "CLIENT_SECRET": "client_secret",
    "scope": "scopes", "scopes": "scopes", "oauthScopes": "scopes",
}  # fmt: skip
"""Settings of a client's sign-in, and their names in `auth`."""

_SIGNS_IN: Final = frozenset({"oauth", "auth", "enabled", "type"})


def auth_of(entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the registered client and the scopes of a client's entry as `auth` takes them, and its other settings."""
    found: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key in OAUTH:
        value = entry.get(key)
        settings = value if isinstance(value, Mapping) else {key: value} if value else {}
        for name, each in settings.items():
            if ours := _OAUTH_KEYS.get(name):
                found[ours] = each.split() if ours == "scopes" and isinstance(each, str) else each
            elif name not in _SIGNS_IN or each not in (True, "oauth", "oauth2"):
                others[name] = each
    return {name: each for name, each in found.items() if each}, others


def as_text(value: Any) -> Any:
    """Return a value of a variable or a header as programs get it: `true`, not `True`. Lists and objects stay."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else "" if value is None else value


_STRING: Final = r'"(?:\\.|[^"\\\n])*"'
_COMMENT: Final = rf"(?s){_STRING}|//[^\n]*|/\*.*?\*/"
_SPARE_COMMA: Final = rf"{_STRING}|,(?=\s*[}}\]])"


def plain_json(text: str) -> str:
    """Return JSON with blanks in the place of comments and spare commas; line breaks stay where they are."""
    return re.sub(_SPARE_COMMA, _blank, re.sub(_COMMENT, _blank, text))


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)
