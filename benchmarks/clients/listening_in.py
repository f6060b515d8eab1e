"""A command between two pipes whose answers are written down as they pass.

python -m benchmarks.clients.listening_in LOG COMMAND...
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run the command to its end; its exit code."""
    log, *command = sys.argv[1:]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with Path(log).open("ab") as said:
        for line in process.stdout:
            said.write(line)
            said.flush()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
