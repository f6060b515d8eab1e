"""Stands for a riglm that `tests.preloaded` forks: passes on its streams and signals, and ends with its exit code.

Started without site packages, for the milliseconds: `python -IS relay.py SOCKET ARGUMENTS OF RIGLM`.
"""

import json
import os
import signal
import socket
import sys

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Have riglm forked, and end as it ends. If this process is killed, riglm is killed."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect("\0" + sys.argv[1])
    order = {"arguments": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109  # imports little
    socket.send_fds(connection, [json.dumps(order).encode()], [0, 1, 2])
    pid = int(connection.recv(32))
    for each in _PASSED_ON:
        signal.signal(each, lambda number, _: os.kill(pid, number))
    for each in (0, 1, 2):
        os.close(each)
    code = int(connection.recv(32) or b"-9")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
