"""What forgetting and purging need: who is forgotten, who taught a learned pair, when a list was last used."""

import time

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import CompactUuid, SafeText

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(sa.text("DELETE FROM cached_vector"))  # those of requests told what was asked; tools' are made again
    op.add_column("toolset", sa.Column("used_at", sa.Double, nullable=False, server_default="0"))
    op.execute(sa.text("UPDATE toolset SET used_at = :now").bindparams(now=time.time()))
    op.create_index("session_ended_at", "session", ["ended_at", "started_at"])
    op.create_table(
        "lesson",
        sa.Column("pair_id", CompactUuid, primary_key=True),
        sa.Column("session_id", CompactUuid, primary_key=True),
    )
    op.create_index("lesson_session_id", "lesson", ["session_id"])
    op.create_table(
        "forgotten",
        sa.Column("whose", sa.String(16), primary_key=True),
        sa.Column("key", SafeText, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("is_done", sa.Boolean, nullable=False),
    )
