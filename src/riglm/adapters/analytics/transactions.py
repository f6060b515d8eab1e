"""What a transaction is told when it begins, as execution options of SQLAlchemy."""

from typing import Final

WRITES: Final = "riglm_writes"
"""Whether it will write."""

SECONDS: Final = "riglm_seconds"
"""How many seconds one statement in it may take; None for what the engine was given."""

APART: Final = "riglm_apart"
"""Whether there is to be no transaction: each statement stands alone, as some of maintenance must."""
