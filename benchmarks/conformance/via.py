"""What the suite runs as "the client" of a leg through riglm: riglm in front of the suite's URL, then the client."""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.subject import Served


def main() -> int:
    """DIRECTORY RIGLM CLIENT... URL; the client's exit code."""
    directory, riglm, *client, url = sys.argv[1:]
    own = Path(tempfile.mkdtemp(prefix="via-", dir=directory))
    served = Served(shlex.split(riglm), ["--url", url], own)
    try:
        return subprocess.run([*client, f"http://127.0.0.1:{served.port}/mcp"], check=False).returncode
    finally:
        served.process.stop()


if __name__ == "__main__":
    sys.exit(main())
