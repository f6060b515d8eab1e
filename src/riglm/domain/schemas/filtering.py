"""Which tools a client gets and may use: access of groups, filtering, profiles, and knowledge."""

import re
from pathlib import PurePath
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from riglm.domain.policy import fault
from riglm.domain.schemas.section import Seconds, SettingsModel, problem
from riglm.domain.session import DEFAULT_PROFILE

ANY_GROUP: Final = "*"
"""The group of all callers."""


def _refuse_faulty(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns, for a validator of a field; one that can match nothing is an error."""
    for pattern in patterns:
        found = fault(pattern)
        if found is not None:
            raise problem(*found)
    return patterns


Patterns = Annotated[tuple[str, ...], AfterValidator(_refuse_faulty)]
"""Names or glob patterns."""


class AccessSettings(SettingsModel):
    """What a group may see and use: the named tools of the named servers, in the named profiles.

    Callers with a token of `downstream.auth` have the groups of its claim, those with one of `downstream.tokens` the
    group of its name. `*` is the group of all callers. Once there is a rule, callers without one get nothing.
    """

    servers: Patterns = Field(default=("*",), min_length=1)
    """Names or glob patterns of servers: of others, the group gets no tools, resources and prompts."""
    tools: Patterns = Field(default=("*",), min_length=1)
    """Names or glob patterns of these servers' tools, exactly as spelt: with `__` for `SERVER__TOOL`, without for the
    tool's name at its server.
    """
    profiles: Patterns = Field(default=("*",), min_length=1)
    """Names or glob patterns of profiles; `default` is the one without."""


SurfaceName = Literal["dynamic", "stable", "hints", "full"]


class MetaToolSwitches(SettingsModel):
    """Which meta-tools riglm adds to a list that hides tools."""

    set_context: bool = True
    """Describes the task and returns the tools for it."""
    search_available_tools: bool = True
    """Searches all tools."""
    call_tool: bool = True
    """Calls a tool that is not listed."""
    index_status: bool = False
    """Reports the state of the search index."""
    mark_tool: bool = False
    """Reports whether a tool was useful."""


_PROFILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _check_directories(directories: tuple[str, ...]) -> tuple[str, ...]:
    for each in directories:
        if not (each.startswith("~/") or PurePath(each).is_absolute()):
            raise problem(f"{each!r} is no absolute path", "begin it with `/` or `~/`")
    return directories


def _refuse_none(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not patterns:
        raise problem("the allowlist is empty", "name tools or patterns in it, or leave it out")
    return patterns


class ProfileSettings(SettingsModel):
    """A set of tools for a project or an agent: its sessions are separate, and learn separately.

    HTTP clients select it by the path `/mcp/PROFILE` or by the header `Riglm-Profile`.
    """

    tokens: tuple[str, ...] = ()
    """Names from `downstream.tokens`: these callers get this profile, and no other."""
    directories: Annotated[tuple[str, ...], AfterValidator(_check_directories)] = ()
    """Absolute paths, or paths that begin with `~/`: stdio clients that start riglm there, or below, get this profile,
    unless `filtering.profile` is given.
    """
    allowlist: Annotated[Patterns, AfterValidator(_refuse_none)] | None = None
    """Replaces `filtering.allowlist` in this profile."""
    denylist: Patterns = ()
    """Denied in addition to `filtering.denylist`."""
    pinned: Patterns = ()
    """Always shown, in addition to `filtering.pinned`."""


def _fill_empty(profiles: object) -> object:
    """Return profiles with a section for each name, as a file has none below a name without keys."""
    if not isinstance(profiles, dict):
        return profiles
    return {name: {} if section is None else section for name, section in profiles.items()}


def _check_names(profiles: dict[str, ProfileSettings]) -> dict[str, ProfileSettings]:
    spelled: dict[str, str] = {}
    for name in profiles:
        if not _PROFILE_NAME.fullmatch(name):
            fix = "use up to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
            raise problem(f"{name!r} cannot be the name of a profile", fix, key=name)
        other = spelled.setdefault(name.lower(), name)
        if other != name:
            raise problem(f"{other!r} and {name!r} differ in case only", "rename one of them", key=name)
    return profiles


class FilteringSettings(SettingsModel):
    """Which tools a client gets and may use."""

    enabled: bool = True
    """`false` lists all tools, regardless of the rest of this section."""
    strategy: Literal["prediction", "allowlist", "denylist", "none"] = "prediction"
    """`prediction` lists the tools that probably pay; `allowlist` and `denylist` list all that the list of that name
    permits; `none` lists all that is neither denied nor excluded by an override.
    """
    mode: Literal["enforce", "shadow"] = "enforce"
    """`shadow` lists everything and records what would have been hidden."""
    min_tools: int = Field(default=5, ge=0)
    """Minimum number of tools in a list that hides some."""
    max_tools: int = Field(default=20, ge=1)
    """Maximum number of tools in a list that hides some, without pinned ones."""
    coverage: float | None = Field(default=None, gt=0, lt=1)
    """Share of the sum of probabilities that a list must hold, within `min_tools` and `max_tools`, instead of the tools
    whose listing pays.
    """
    allowlist: Patterns = ()
    """Exact names or glob patterns. If there are any, all other tools are denied."""
    denylist: Patterns = ()
    """Names or glob patterns of tools to deny, in any spelling, of any server."""
    pinned: Patterns = ()
    """Names or glob patterns of tools that are always listed."""
    surface: Literal["auto", SurfaceName] = "auto"
    """How a selection reaches the client; `auto` chooses by client and by era. `dynamic` for modern clients departs
    from their protocol.
    """
    clients: dict[str, SurfaceName] = Field(default={})
    """Surfaces by glob pattern of the client's name, for `auto`."""
    profile: str = Field(default=DEFAULT_PROFILE, min_length=1)
    """Profile of sessions for which no other is selected."""
    profiles: Annotated[dict[str, ProfileSettings], BeforeValidator(_fill_empty), AfterValidator(_check_names)] = Field(
        default={}
    )
    """Sets of tools by name, for a project or an agent."""
    period: Seconds = 86_400
    """Seconds after which a warm set is recomputed, if the number of sessions has not grown by 30 % before."""
    cold_start_limit: int = Field(default=50, ge=1)
    """Maximum number of tools in a list that hides some while nothing was learned."""
    index_tokens: int = Field(default=400, ge=0)
    """Maximum tokens of the hidden-tool index in the search's description."""
    retained_turns: int = Field(default=3, ge=0)
    """Number of turns for which a used tool stays listed."""
    turn_keys: tuple[str, ...] = ("vscode.requestId", "traceparent")
    """Keys of `_meta` whose value changes with the turn, best first."""
    turn_pause: Seconds = 120
    """Seconds without a call after which the next one begins a turn."""
    answer_tools: int = Field(default=10, ge=1, le=100)
    """Maximum number of definitions in the result of a search or of `set_context`."""
    meta_tools: MetaToolSwitches = MetaToolSwitches.model_construct()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.max_tools < self.min_tools:
            what = f"max_tools ({self.max_tools}) is less than min_tools ({self.min_tools})"
            raise problem(what, "make it larger", key="max_tools")
        for key in ("tokens", "directories"):
            found: dict[str, str] = {}
            for name, profile in self.profiles.items():
                for value in getattr(profile, key):
                    other = found.setdefault(value.rstrip("/"), name)
                    if other != name:
                        words = f"{value!r} is in the {key} of {other!r} and {name!r}"
                        raise problem(words, "keep it in one of them", key=f"profiles.{name}.{key}")
        if self.profiles and self.profile not in (DEFAULT_PROFILE, *self.profiles):
            known = ", ".join((DEFAULT_PROFILE, *self.profiles))
            raise problem(f"there is no profile {self.profile!r}", f"use one of: {known}", key="profile")
        lists = {"allowlist": self.allowlist, "denylist": self.denylist}
        in_profiles = self.strategy == "denylist" and any(profile.denylist for profile in self.profiles.values())
        if self.strategy in lists and not (lists[self.strategy] or in_profiles):
            raise problem(
                f"the strategy is {self.strategy} and filtering.{self.strategy} is empty",
                "name tools or patterns there, or use prediction or none",
                key=self.strategy,
            )
        return self

    @property
    def profile_of_token(self) -> dict[str, str]:
        """Return the profile of each caller that has one, by the name of its token."""
        return {token: name for name, profile in self.profiles.items() for token in profile.tokens}

    def of_profile(self, name: str) -> "FilteringSettings":
        """Return the settings that hold in one of the profiles."""
        profile = self.profiles[name]
        return self.model_copy(
            update={
                "profile": name,
                "profiles": {},
                "allowlist": self.allowlist if profile.allowlist is None else profile.allowlist,
                "denylist": (*self.denylist, *profile.denylist),
                "pinned": (*self.pinned, *profile.pinned),
            }
        )

    @property
    def is_on(self) -> bool:
        """Return True if riglm inspects lists and calls: overrides apply with every strategy."""
        return self.enabled

    @property
    def contradictions(self) -> tuple[str, ...]:
        """What both lists name alike: it is denied."""
        denied = frozenset(self.denylist)
        return tuple(name for name in self.allowlist if name in denied)

    @property
    def denies(self) -> bool:
        """Whether the lists deny any tool, in some profile at least."""
        return bool(self.allowlist or self.denylist) or any(self.of_profile(name).denies for name in self.profiles)


Similarity = Annotated[float, Field(ge=0, le=1)]
"""A cosine similarity that counts for something."""

DEFAULT_MIN_FLOOR = 0.15
"""Default of how far the floor gives way."""

DEFAULT_CANDIDATES = 150
"""Default number of candidates of each source."""

MAX_CANDIDATES = 10_000
"""More candidates of a source are never looked at."""


class KnowledgeSettings(SettingsModel):
    """The knowledge store, and the tool that queries it."""

    enabled: bool = False
    """Offer `inner_voice.retrieve`, as `SURR_ENABLE_INNER_VOICE=1` does."""
    alias: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """List `inner_voice.retrieve` under this name, for clients that reject dots."""
    shared: bool = False
    """Answer all callers from the knowledge of all owners."""
    mix: Similarity = 0.6
    """Share of the graph in a result; the rest are thoughts."""
    top_k: int = Field(default=10, ge=1, le=50)
    """Default number of snippets."""
    floor: Similarity = 0.25
    """Minimum similarity of a snippet to the query."""
    min_floor: float = Field(default=DEFAULT_MIN_FLOOR, gt=0, lt=1)
    """Limit to which the floor is lowered so that no source is left out."""
    max_candidates_per_source: int = Field(default=DEFAULT_CANDIDATES, ge=1, le=MAX_CANDIDATES)
    """Maximum number of candidates of each source."""
    deadline: Seconds = 20
    """Seconds to wait for the embedder, and for the store."""
    dimensions: int | None = Field(default=None, ge=1)
    """Expected dimensions of the model's vectors; others cause a warning."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.alias in MetaToolSwitches.model_fields:
            raise problem(f"{self.alias!r} is another tool of riglm", "choose another name", key="alias")
        key = "max_candidates_per_source"
        if self.max_candidates_per_source < self.top_k:
            what = f"{key} ({self.max_candidates_per_source}) is less than top_k ({self.top_k})"
            raise problem(what, "make it larger", key=key)
        return self
