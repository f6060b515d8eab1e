"""The tables of the analytics store. Migrations bring a database to this shape; a test compares the two."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, MetaData, String, Table

from riglm.adapters.analytics.columns import CompactUuid, JsonText, SafeText, Vector

SCHEMA_REVISION: Final = "0001"
"""The newest migration that this code knows."""

metadata: Final = MetaData()

toolset: Final = Table(
    "toolset",
    metadata,
    Column(
        "id", CompactUuid, primary_key=True
    ),  # a hash of the names: sessions and exposures repeat the same few lists
    Column("names", JsonText, nullable=False),
)

session: Final = Table(
    "session",
    metadata,
    Column("id", CompactUuid, primary_key=True),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("era", String(16), nullable=False),
    Column("transport", String(16), nullable=False),
    Column("method", String(16), nullable=False),
    Column("confidence", String(16), nullable=False),
    Column("client_name", SafeText, nullable=False),
    Column("client_version", SafeText, nullable=False),
    Column("client_id", String(64), nullable=False),
    Column("principal", String(64), nullable=False),
    Column("protocol_version", SafeText, nullable=False),
    Column("keys", JsonText, nullable=False),
    Column("metadata", JsonText, nullable=False),
    Column("tools_available", CompactUuid, nullable=False),  # a toolset
    Index("session_started_at", "started_at"),
)

invocation: Final = Table(
    "invocation",
    metadata,
    Column("id", CompactUuid, primary_key=True),
    Column("session_id", CompactUuid, nullable=False),  # no foreign key: an invocation may arrive before its session
    Column("tool", SafeText, nullable=False),
    Column("upstream", SafeText, nullable=False),
    Column("timestamp", Double, nullable=False),
    Column("duration_ms", Double, nullable=False),
    Column("success", Boolean, nullable=False),
    Column("sequence_number", BigInteger, nullable=False),
    Column("arguments_hash", String(64), nullable=False),
    Column("arguments", SafeText),
    Column("error_kind", String(16)),
    Column("error_code", BigInteger),
    Column("found", String(16), nullable=False),
    Column("context_embedding", Vector),
    Index("invocation_session_id", "session_id", "sequence_number"),
    Index("invocation_timestamp", "timestamp"),
)

exposure: Final = Table(
    "exposure",
    metadata,
    Column("id", CompactUuid, primary_key=True),
    Column("session_id", CompactUuid, nullable=False),
    Column("timestamp", Double, nullable=False),
    Column("shown", CompactUuid, nullable=False),  # a toolset
    Column("available", CompactUuid, nullable=False),  # a toolset: what was shown and what was hidden
    Column("predictor", SafeText, nullable=False),
    Column("reason", SafeText, nullable=False),
    Index("exposure_session_id", "session_id", "timestamp"),
    Index("exposure_timestamp", "timestamp"),
)

cooccurrence: Final = Table(
    "cooccurrence",
    metadata,
    Column("tool_a", SafeText, primary_key=True),
    Column("tool_b", SafeText, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("average_distance", Double, nullable=False),
    Column("last_updated", Double, nullable=False),
    Index("cooccurrence_tool_b", "tool_b"),
)
