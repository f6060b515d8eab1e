"""Invocations without the vector of their context, which was always null."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("invocation", "context_embedding")
