"""Ends the children of a riglm that died without ending them itself.

Runs as a process of its own with nothing but the standard library. It reads process groups from its standard input,
`+PGID` when one starts and `-PGID` when one is gone, and ends those that are left when the input ends, which it does
when riglm dies, however it dies.
"""

import os
import signal
import sys
import time

GRACE_SECONDS = 1.0


def end_groups(groups: set[int], grace: float = GRACE_SECONDS) -> None:
    """Ask every group to go, wait, and kill those that stay."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in list(groups):
            try:
                os.killpg(group, number)
            except (ProcessLookupError, PermissionError):
                groups.discard(group)
        deadline = time.monotonic() + grace
        while groups and number == signal.SIGTERM and time.monotonic() < deadline:
            time.sleep(0.05)
            groups -= {group for group in groups if not _alive(group)}


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> None:
    """Read the groups until the input ends, then end those that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        if line[:1] == b"+":
            groups.add(group)
        else:
            groups.discard(group)
    end_groups(groups)


if __name__ == "__main__":
    main()
