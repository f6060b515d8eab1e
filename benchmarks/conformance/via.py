"""What the suite runs as "the client" of a leg through riglm: riglm in front of the suite's URL, then the client."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.conformance import signed_in
from benchmarks.conformance.judged import Judged


def main() -> int:
    """DIRECTORY FILTERING RIGLM CLIENT... URL; the client's exit code."""
    directory, filtering, riglm, *client, url = sys.argv[1:]
    judged = Judged(tuple(shlex.split(riglm)), filtering)
    if os.environ["MCP_CONFORMANCE_SCENARIO"].startswith("auth/"):
        return signed_in.main(directory, judged, client, url)
    own = Path(tempfile.mkdtemp(prefix="via-", dir=directory))
    served = judged.served(["--url", url], own)
    try:
        return subprocess.run([*client, f"http://127.0.0.1:{served.port}/mcp"], check=False).returncode
    finally:
        served.process.stop()


if __name__ == "__main__":
    sys.exit(main())
