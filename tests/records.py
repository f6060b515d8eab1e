"""Records for tests: each is complete, and says only what matters."""

from collections import Counter
from typing import Any

import numpy as np

from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair, Usage, WarmSet, WarmSetKey
from riglm.domain.policy import Override, OverrideKind
from riglm.domain.session import IdentificationMethod, ProtocolEra, Session, Transport, uuid7
from riglm.domain.session_cost import TokenUsage
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.tool_pin import ToolPin
from riglm.ports.analytics import DashboardQueriesPort


def a_session(**known: Any) -> Session:
    """A session; `known` says what matters to the test."""
    return Session(
        **{
            "started_at": 1000.0,
            "era": ProtocolEra.HANDSHAKE,
            "transport": Transport.STDIO,
            "method": IdentificationMethod.PROCESS,
            **known,
        }
    )


def an_invocation(session: Session, tool: str, **known: Any) -> ToolInvocation:
    """The session's next invocation; `known` overrides fields."""
    number = session.next_sequence_number()
    return ToolInvocation(
        **{
            "id": uuid7(),
            "session_id": session.id,
            "tool": tool,
            "upstream": "github",
            "timestamp": session.started_at + number,
            "duration_ms": 1.5,
            "success": True,
            "sequence_number": number,
            **known,
        }
    )


def an_exposure(session: Session, *shown: str, **known: Any) -> Exposure:
    """An exposure of the session; `known` overrides fields."""
    return Exposure(
        **{"id": uuid7(), "session_id": session.id, "timestamp": session.started_at, "shown": shown, **known}
    )


def calls_by_tool(store: DashboardQueriesPort) -> Counter[str]:
    """Return the number of stored calls of each tool, meta-tools included."""
    sessions = (each.session.id for each in store.list_sessions(1_000))
    return Counter(call.tool for id_ in sessions for call in store.list_invocations(id_))


def a_learned_pair(**known: Any) -> LearnedPair:
    """A learned pair of the model `minilm`; `known` says what matters to the test."""
    return LearnedPair(
        **{
            "id": uuid7(),
            "scope": "",
            "tool": "read",
            "model": "minilm",
            "vector": np.array([0.6, 0.8], dtype=np.float32),
            "confidence": 0.5,
            "uses": 1,
            "updated_at": 1000.0,
            **known,
        }
    )


def an_override(**known: Any) -> Override:
    """An override that includes the tool `read` for all; `known` says what matters to the test."""
    return Override(**{"id": uuid7(), "kind": OverrideKind.INCLUDE, "tool": "read", "created_at": 1000.0, **known})


def a_warm_set(*tools: str, **known: Any) -> WarmSet:
    """A warm set with these tools, each as likely as not; `known` overrides fields of it and of its key."""
    usage = Usage(evidence=3, probabilities=dict.fromkeys(tools, 0.5), requests=4.5, distinct_tools=2.5)
    key = {"principal": "p" * 32, "client": "cursor", "profile": "default", "project": "q" * 32}
    fields: dict[str, Any] = {
        "key": WarmSetKey(**{name: known.pop(name, value) for name, value in key.items()}),
        "strategy": '["hybrid", {}]',
        "predictor": "hybrid",
        "usage": usage,
        "created_at": 1001.0,
    }
    return WarmSet(**(fields | known))


def a_tool_catalog(**known: Any) -> StoredToolCatalog:
    """The catalog of a server with one tool; `known` overrides fields."""
    return StoredToolCatalog(
        **{
            "fingerprint": "f" * 32,
            "variant": "handshake:0",
            "server": "files",
            "capabilities": b'{"tools":{}}',
            "instructions": "Be kind.",
            "tools": b'[{"name":"read"}]',
            "updated_at": 1000.0,
            **known,
        }
    )


def a_token_usage(**known: Any) -> TokenUsage:
    """Token counts of a session in a transcript."""
    counts = dict.fromkeys(("uncached", "cached", "written", "output", "first_prompt", "repeated", "reused"), 1)
    given = {
        "id": uuid7(),
        "session_id": uuid7(),
        "client": "cursor",
        "client_id": "c" * 32,
        "principal": "",
        "started_at": 1000.0,
        "calls": 1,
        "requests": 1,
        **counts,
        **known,
    }
    return TokenUsage(**given)


def a_tool_pin(**known: Any) -> ToolPin:
    """The pin of an unchanged tool `read` of the server `files`; `known` overrides fields."""
    definition = b'{"name":"read"}'
    return ToolPin(
        **{
            "server": "files",
            "name": "read",
            "digest": "a" * 64,
            "definition": definition,
            "seen_digest": "a" * 64,
            "seen": definition,
            "pinned_at": 1000.0,
            "seen_at": 1000.0,
            **known,
        }
    )
