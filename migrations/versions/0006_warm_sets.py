"""Warm sets by client, as usage estimates; those stored until now are computed again."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import JsonText, SafeText

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("session_principal", "session", ["principal", "started_at"])
    op.drop_table("warm_set")
    op.create_table(
        "warm_set",
        sa.Column("principal", SafeText, primary_key=True),
        sa.Column("client", SafeText, primary_key=True),
        sa.Column("profile", SafeText, primary_key=True),
        sa.Column("evidence", sa.BigInteger, nullable=False),
        sa.Column("probabilities", JsonText, nullable=False),
        sa.Column("requests", sa.Double, nullable=False),
        sa.Column("distinct_tools", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
