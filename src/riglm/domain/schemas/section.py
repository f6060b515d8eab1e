"""The smaller sections of the configuration."""

from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from riglm.domain.schemas.base import Seconds, Section, problem

_MIB = 1024 * 1024
_SHORTEST_KEY = 32


class Timeouts(Section):
    """How long riglm waits for an upstream, in seconds."""

    connect: Seconds = Field(default=10, description="To open a connection to a URL.")
    initialize: Seconds = Field(default=30, description="For the opening exchange with a server.")
    list: Seconds = Field(default=30, description="For one page of a list.")
    grace: Seconds = Field(
        default=0.8,
        description="For the slowest of several servers, when a client connects and, if it follows list-changed "
        "notifications, when it lists tools. Other clients wait for a server whose tools are not known until shortly "
        "before they would give up: after 10 seconds if nothing else is known, but not longer than `list`.",
    )
    call: Seconds = Field(default=900, description="For any other request; progress restarts it.")
    call_max: Seconds = Field(default=14_400, description="For any other request in all, progress or not.")
    shutdown: Seconds = Field(
        default=2,
        description="For a child to go once its input ended, and as many again after SIGTERM; then it is killed.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.call_max < self.call:
            raise problem(
                f"call_max ({self.call_max:g}) is less than call ({self.call:g})", "make it larger", key="call_max"
            )
        return self


class Limits(Section):
    """How much riglm takes."""

    message_bytes: int = Field(
        default=64 * _MIB, ge=65_536, description="The largest message in either direction, in bytes."
    )
    sse_buffer: int = Field(
        default=16 * _MIB, ge=65_536, description="Bytes kept for a client that does not read its stream."
    )


class Sessions(Section):
    """How calls are assigned to sessions: the first kind of evidence found counts."""

    meta_keys: tuple[str, ...] = Field(
        default=(
            "vscode.conversationId",
            "threadId",
            "openai/session",
            "ai.opencode/sessionID",
            "antigravity.google/conversation_id",
        ),
        description="Keys of `_meta` in which clients name the conversation, best first.",
    )
    environment_keys: tuple[str, ...] = Field(
        default=("CLAUDE_CODE_SESSION_ID", "GROK_SESSION_ID"),
        description="Environment variables in which clients on stdio name it, best first.",
    )
    header: str = Field(
        default="X-Riglm-Session",
        pattern=r"^[A-Za-z0-9-]+$",
        description="The HTTP header in which a client may name its session.",
    )
    idle_gap: Seconds = Field(
        default=1800, description="Seconds without a message after which an inferred session ends."
    )


class Logging(Section):
    """What riglm says on stderr, and whether arguments leave a trace in the store."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least weight of what is logged."
    )
    include_arguments: bool = Field(
        default=True, description="Store each call's arguments as `privacy.arguments` specifies."
    )
    include_results: bool = Field(default=False, description="Must stay `false`: results are never stored.")

    @field_validator("include_results")
    @classmethod
    def _never(cls, include_results: bool) -> bool:
        if include_results:
            raise problem("results are never stored", "remove it, or set it to false")
        return include_results


class Privacy(Section):
    """What of a call is stored."""

    arguments: Literal["hash", "raw", "none"] = Field(
        default="hash", description="A keyed hash of the arguments, the arguments as they were sent, or nothing."
    )
    key: SecretStr | None = Field(
        default=None,
        description="The key of all hashes, for several processes that have no data directory in common: 32 or more "
        "random characters, the same for all. By default a file in the data directory, made at the first start.",
    )

    @field_validator("key")
    @classmethod
    def _long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < _SHORTEST_KEY:
            fix = "use random characters, for example of `openssl rand -hex 32`"
            raise problem("the key is too short and easy to guess", fix)
        return key
