"""A call that riglm recorded itself is found in its transcript, and no other call is taken for it."""

from uuid import UUID

from riglm.application.setup.transcripts.collecting import LiveCallMatcher
from riglm.application.setup.transcripts.recording import stable_id
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.session import uuid7
from riglm.ports.analytics import TrainingCall, TrainingSession

HASHER = KeyedHasher(b"k" * 32)


def recorded(*calls: tuple[str, float], id_: UUID | None = None) -> TrainingSession:
    made = tuple(TrainingCall(tool, "s", DiscoveryMethod.LISTED, True, at) for tool, at in calls)
    session = id_ or uuid7()
    return TrainingSession(
        id=session, started_at=0.0, client="c", client_id="", principal="", tools_available=(), calls=made
    )


def test_a_call_of_another_time_or_tool_is_no_record_of_it() -> None:
    live = LiveCallMatcher([recorded(("echo", 10.0))])
    assert not live.take(["other"], 9.0, 11.0)
    assert not live.take(["echo"], 20.0, 30.0)
    assert not live.take(["echo"], 1.0, 5.0)
    assert live.take(["other", "echo"], 11.5, 12.0)  # its line was written somewhat later


def test_ids_are_the_same_at_every_reading_and_under_one_key_alone() -> None:
    again, other = KeyedHasher(b"k" * 32), KeyedHasher(b"o" * 32)
    id_ = stable_id(HASHER, "call", "codex", "c1/1", "echo")
    assert id_ == stable_id(again, "call", "codex", "c1/1", "echo")
    assert id_ not in {
        stable_id(other, "call", "codex", "c1/1", "echo"),
        stable_id(again, "call", "codex", "c1/1", "x"),
    }
