"""Sessions, invocations, exposures and co-occurrences."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import CompactUuid, JsonText, SafeText

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "toolset", sa.Column("id", CompactUuid, primary_key=True), sa.Column("names", JsonText, nullable=False)
    )
    op.create_table(
        "session",
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("era", sa.String(16), nullable=False),
        sa.Column("transport", sa.String(16), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("confidence", sa.String(16), nullable=False),
        sa.Column("client_name", SafeText, nullable=False),
        sa.Column("client_version", SafeText, nullable=False),
        sa.Column("client_id", sa.String(64), nullable=False),
        sa.Column("principal", sa.String(64), nullable=False),
        sa.Column("protocol_version", SafeText, nullable=False),
        sa.Column("keys", JsonText, nullable=False),
        sa.Column("metadata", JsonText, nullable=False),
        sa.Column("tools_available", CompactUuid, nullable=False),
    )
    op.create_index("session_started_at", "session", ["started_at"])
    op.create_table(
        "invocation",
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("session_id", CompactUuid, nullable=False),
        sa.Column("tool", SafeText, nullable=False),
        sa.Column("upstream", SafeText, nullable=False),
        sa.Column("timestamp", sa.Double, nullable=False),
        sa.Column("duration_ms", sa.Double, nullable=False),
        sa.Column("success", sa.Boolean, nullable=False),
        sa.Column("sequence_number", sa.BigInteger, nullable=False),
        sa.Column("arguments_hash", sa.String(64), nullable=False),
        sa.Column("arguments", SafeText),
        sa.Column("error_kind", sa.String(16)),
        sa.Column("error_code", sa.BigInteger),
        sa.Column("found", sa.String(16), nullable=False),
        sa.Column("context_embedding", sa.LargeBinary),
    )
    op.create_index("invocation_session_id", "invocation", ["session_id", "sequence_number"])
    op.create_index("invocation_timestamp", "invocation", ["timestamp"])
    op.create_table(
        "exposure",
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("session_id", CompactUuid, nullable=False),
        sa.Column("timestamp", sa.Double, nullable=False),
        sa.Column("shown", CompactUuid, nullable=False),
        sa.Column("available", CompactUuid, nullable=False),
        sa.Column("predictor", SafeText, nullable=False),
        sa.Column("reason", SafeText, nullable=False),
    )
    op.create_index("exposure_session_id", "exposure", ["session_id", "timestamp"])
    op.create_index("exposure_timestamp", "exposure", ["timestamp"])
    op.create_table(
        "cooccurrence",
        sa.Column("tool_a", SafeText, primary_key=True),
        sa.Column("tool_b", SafeText, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("average_distance", sa.Double, nullable=False),
        sa.Column("last_updated", sa.Double, nullable=False),
    )
    op.create_index("cooccurrence_tool_b", "cooccurrence", ["tool_b"])
