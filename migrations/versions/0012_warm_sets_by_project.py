"""Warm sets by project and predictor; those that exist are computed again."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import JsonText, SafeText

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("warm_set")
    op.create_table(
        "warm_set",
        *(sa.Column(name, SafeText, primary_key=True) for name in ("principal", "client", "profile", "project")),
        *(sa.Column(name, SafeText, nullable=False) for name in ("strategy", "predictor")),
        sa.Column("evidence", sa.BigInteger, nullable=False),
        sa.Column("probabilities", JsonText, nullable=False),
        sa.Column("requests", sa.Double, nullable=False),
        sa.Column("distinct_tools", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
