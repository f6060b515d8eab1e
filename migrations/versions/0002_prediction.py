"""What prediction keeps: learned pairs, vectors, overrides, warm sets, and what exposures cost."""

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import CompactUuid, JsonText, SafeText

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("exposure", sa.Column("mode", sa.String(16), nullable=False, server_default="off"))
    op.add_column("exposure", sa.Column("surface", sa.String(16), nullable=False, server_default=""))
    op.add_column("exposure", sa.Column("tokens_shown", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("exposure", sa.Column("tokens_hidden", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("exposure", sa.Column("tokens_own", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "learned_pair",
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("scope", SafeText, nullable=False),
        sa.Column("tool", SafeText, nullable=False),
        sa.Column("model", SafeText, nullable=False),
        sa.Column("dimensions", sa.BigInteger, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("uses", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("description_hash", SafeText, nullable=False),
        sa.Column("terms", JsonText, nullable=False),
    )
    op.create_index("learned_pair_model", "learned_pair", ["model", "updated_at"])
    op.create_index("learned_pair_updated_at", "learned_pair", ["updated_at"])
    op.create_table(
        "cached_vector",
        sa.Column("model", SafeText, primary_key=True),
        sa.Column("hash", SafeText, primary_key=True),
        sa.Column("rows", sa.BigInteger),
        sa.Column("dimensions", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
    )
    op.create_index("cached_vector_used_at", "cached_vector", ["used_at", "rows", "dimensions"])
    op.create_table(
        "override",
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("tool", SafeText, nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("key", SafeText, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("reason", SafeText, nullable=False),
    )
    op.create_table(
        "warm_set",
        sa.Column("principal", SafeText, primary_key=True),
        sa.Column("profile", SafeText, primary_key=True),
        sa.Column("epoch_start", sa.Double, primary_key=True),
        sa.Column("tools", JsonText, nullable=False),
        sa.Column("predictor", SafeText, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
