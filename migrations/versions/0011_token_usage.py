"""Token counts of the sessions in transcripts."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import CompactUuid, SafeText

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COUNTS = ("calls", "requests", "uncached", "cached", "written", "output", "first_prompt", "repeated", "reused")


def upgrade() -> None:
    op.create_table(
        "token_usage",
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("session_id", CompactUuid, nullable=False),
        sa.Column("client", SafeText, nullable=False),
        sa.Column("client_id", sa.String(64), nullable=False),
        sa.Column("principal", sa.String(64), nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS),
    )
    op.create_index("token_usage_started_at", "token_usage", ["started_at"])
