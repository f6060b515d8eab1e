"""A tool in a transcript is found behind the riglm that stands in front of its server, however clients spell it."""

from uuid import UUID

import pytest

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.setup.transcript_collecting import LiveCallMatcher, ProxyInstance, ResolvedTool, ToolNames
from riglm.application.setup.transcript_recording import PairTraining, TranscriptSession, stable_id
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.naming import prefixed
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.session import uuid7
from riglm.ports.analytics import TrainingCall, TrainingSession
from tests.records import a_session, an_invocation

SEVERAL = ProxyInstance(servers=("github", "git_hub.eu", "my-docs"))


def found(name, *fronts, server=None, separator="__", listed=()):
    return ToolNames(fronts, listed).find(name, server, separator)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("github__create_issue", ResolvedTool("github__create_issue", "github")),
        ("git_hub_eu__create", ResolvedTool("git_hub.eu__create", "git_hub.eu")),
        ("plugin_docs_my-docs__read", ResolvedTool("my-docs__read", "my-docs")),
        ("claude_ai_github__create_issue", ResolvedTool("github__create_issue", "github")),
        ("riglm__github__create_issue", ResolvedTool("github__create_issue", "github", behind_riglm=True)),
        ("riglm__set_context", ResolvedTool("set_context", "", behind_riglm=True)),
        ("github__", None),
        ("gitlab__create_issue", None),
    ],
)
def test_the_name_of_claude_code_for_one_of_several_servers(name, known):
    assert found(name, SEVERAL) == known


def test_a_name_that_the_client_altered_is_told_by_what_riglm_listed():
    listed = {"github__create.issue", "github__other"}
    assert found("github__create_issue", SEVERAL, listed=listed) == ResolvedTool("github__create.issue", "github")
    assert found("create.issue", SEVERAL, server="github", listed=listed) == ResolvedTool(
        "github__create.issue", "github"
    )


def test_where_one_letter_parts_server_and_tool_only_servers_that_are_known_are_found():
    assert found("github_create_issue", SEVERAL, separator="_") == ResolvedTool("github__create_issue", "github")
    assert found("gitlab_create_issue", SEVERAL, separator="_") is None


def test_a_name_that_riglm_would_cut_is_cut():
    tool = "t" * 64
    assert found(f"github__{tool}", SEVERAL) == ResolvedTool(prefixed("github", tool), "github")


# --- a call that riglm recorded itself is found in its transcript, and no other call is taken for it ---


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


# --- what the calls of a transcript teach of the contexts they were made in ---


def test_a_failed_call_teaches_no_context():
    session = a_session()
    done, failed = an_invocation(session, "send_mail"), an_invocation(session, "delete_mail", success=False)
    pair_training = PairTraining(LearnedPairs(), HashingEmbedder(), most_pairs=10, scope="", names=str)
    conversation = TranscriptSession(
        id=uuid7(),
        source="claude-code",
        client="claude-code",
        started_at=1.0,
        ended_at=2.0,
        contexts=["send the report to anna"],
        steps=[(done, (0,)), (failed, (0,))],
    )
    assert [pair.tool for pair in pair_training.of(conversation, session)] == ["send_mail"]
