"""What the calls of a transcript teach of the contexts they were made in."""

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.setup.transcripts.recording import ImportedCall, PairTraining, TranscriptSession
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.session import uuid7
from tests.records import a_session


def make_step(tool, *, failed=False):
    return ImportedCall(
        id=uuid7(),
        tool=tool,
        upstream="server",
        arguments_hash="",
        started=1.0,
        seconds=1.0,
        failed=failed,
        number=1,
        asked=(0,),
    )


def test_a_failed_call_teaches_no_context():
    pair_training = PairTraining(LearnedPairs(), HashingEmbedder(), most_pairs=10, scope="", names=str)
    conversation = TranscriptSession(
        id=uuid7(),
        source="claude-code",
        client="claude-code",
        started_at=1.0,
        ended_at=2.0,
        contexts=["send the report to anna"],
        steps=[make_step("send_mail"), make_step("delete_mail", failed=True)],
    )
    assert [pair.tool for pair in pair_training.of(conversation, a_session())] == ["send_mail"]
