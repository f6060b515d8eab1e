"""Settings of a new transaction, as execution options of SQLAlchemy."""

from typing import Final

WRITES: Final = "riglm_writes"
"""Whether it will write."""

SECONDS: Final = "riglm_seconds"
"""How many seconds one statement in it may take; None for what the engine was given."""

APART: Final = "riglm_apart"
"""True if there is no transaction: each statement is independent, as some of maintenance must be."""
