"""The project of each session."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("session", sa.Column("project", sa.String(64), nullable=False, server_default=""))
