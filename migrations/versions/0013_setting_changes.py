"""Settings that were changed at run time."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import JsonText

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "setting_change",
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("value", JsonText, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
    )
