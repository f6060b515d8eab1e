"""How sessions are recognised, and how several processes share them."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from riglm.application.recording.tracking import TrackingService
from riglm.application.sessions.registry import Evidence, SessionRegistry
from riglm.composition.wanted import stands_in_the_way
from riglm.domain.errors import ConfigurationError
from riglm.domain.hashing import KeyedHasher
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.application.filtering.service import FilteringService
    from riglm.application.sharing.sharing import Sharing
    from riglm.ports.session_state import SessionStatePort

_log: Final = logging.getLogger("riglm")


def evidence(settings: Settings) -> Evidence:
    """Where to look for what tells sessions apart."""
    sessions = settings.sessions
    return Evidence(
        meta_keys=sessions.meta_keys,
        environment_keys=sessions.environment_keys,
        environment=os.environ,
        idle_gap=sessions.idle_gap,
        most_kept=settings.downstream.max_sessions,
        profile=settings.filtering.profile,
    )


def make_state(settings: Settings) -> "SessionStatePort":
    """What processes share of their sessions."""
    try:
        from riglm.adapters.state.redis import RedisSessionState
    except ModuleNotFoundError as error:
        words = "state.kind: the client of Redis is not installed — fix: pip install 'riglm[redis]'"
        raise ConfigurationError(words) from error
    chosen = settings.state
    url = chosen.url.get_secret_value() if chosen.url else ""
    return RedisSessionState(url, prefix=chosen.prefix, deadline=chosen.deadline)


def make_sharing(
    settings: Settings,
    state: "SessionStatePort",
    hasher: KeyedHasher,
    sessions: SessionRegistry,
    tracking: TrackingService,
    filtering: "Callable[[], FilteringService]",
) -> "Sharing":
    """What keeps it, and asks for it."""
    from riglm.application.sharing.building import build_sharing

    idle = settings.downstream.session_idle
    return build_sharing(
        state,
        hasher.derived_key("shared state"),
        sessions,
        tracking,
        filtering() if stands_in_the_way(settings) else None,
        link_seconds=idle,
        session_seconds=max(settings.sessions.idle_gap, idle),
    )
