"""Thoughts and a knowledge graph, with the vectors by which they are found."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from riglm.adapters.analytics.tables import CompactUuid, JsonText, SafeText

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create(
        "thought",
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("is_private", sa.Boolean, nullable=False),
    )
    _create("kg_entity", sa.Column("name", SafeText, nullable=False), sa.Column("kind", SafeText, nullable=False))
    _create(
        "kg_observation",
        sa.Column("entity", SafeText, nullable=False),
        sa.Column("about", sa.String(64), nullable=False),
    )
    op.create_index("kg_observation_about", "kg_observation", ["owner", "about"])
    op.create_table(
        "kg_relation",
        sa.Column("owner", sa.String(64), primary_key=True),
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("source", SafeText, nullable=False),
        sa.Column("kind", SafeText, nullable=False),
        sa.Column("target", SafeText, nullable=False),
        sa.Column("source_hash", sa.String(64), nullable=False),
        sa.Column("target_hash", sa.String(64), nullable=False),
    )
    op.create_index("kg_relation_source", "kg_relation", ["owner", "source_hash"])
    op.create_index("kg_relation_target", "kg_relation", ["owner", "target_hash"])
    op.create_table(
        "knowledge_clock",
        sa.Column("piece", sa.String(32), primary_key=True),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("removed", sa.BigInteger, nullable=False),
    )


def _create(name: str, *columns: sa.Column[Any]) -> None:
    op.create_table(
        name,
        sa.Column("id", CompactUuid, primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("text", SafeText, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("tags", JsonText, nullable=False),
        sa.Column("model", SafeText),
        sa.Column("dimensions", sa.BigInteger),
        sa.Column("vector", sa.LargeBinary),
        sa.Column("changed", sa.BigInteger, nullable=False),
        *columns,
    )
    op.create_index(f"{name}_hash", name, ["owner", "hash"], unique=True)
    op.create_index(f"{name}_changed", name, ["changed", "id"])
    op.create_index(f"{name}_created_at", name, ["created_at"])
