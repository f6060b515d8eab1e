"""The tools of each upstream server as it last listed them."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import SafeText

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tool_catalog",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("variant", sa.String(64), primary_key=True),
        sa.Column("server", SafeText, nullable=False),
        sa.Column("capabilities", sa.LargeBinary, nullable=False),
        sa.Column("instructions", SafeText, nullable=False),
        sa.Column("tools", sa.LargeBinary, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
    )
