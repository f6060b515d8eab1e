"""What riglm says of itself where it speaks in its own name."""

from importlib.metadata import version
from typing import Final

SERVER_INFO: Final = {"name": "riglm", "title": "riglm", "version": version("riglm")}
"""riglm as a server in front of several others, and as a client that asks on its own account."""
