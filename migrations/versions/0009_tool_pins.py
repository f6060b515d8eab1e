"""The tools of upstream servers as they were approved, and as they were last listed."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import SafeText

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tool_pin",
        sa.Column("server", SafeText, primary_key=True),
        sa.Column("name", SafeText, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("seen_digest", sa.String(64), nullable=False),
        sa.Column("definition", sa.LargeBinary, nullable=False),
        sa.Column("seen", sa.LargeBinary, nullable=False),
        sa.Column("resembles", SafeText, nullable=False),
        sa.Column("pinned_at", sa.Double, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
    )
