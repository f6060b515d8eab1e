"""Whose sessions taught a learned pair, known beyond the sessions themselves."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import CompactUuid, SafeText

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "teacher",
        sa.Column("pair_id", CompactUuid, primary_key=True),
        sa.Column("client_id", SafeText, primary_key=True),
        sa.Column("client_name", SafeText, primary_key=True),
        sa.Column("principal", SafeText, primary_key=True),
    )
