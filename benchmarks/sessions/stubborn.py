"""Upstreams that are hard to end: stubborn.py ignores|parent.

`ignores` pays no heed to the end of its input nor to SIGTERM and SIGINT; `parent` starts processes that hold its output
open and outlive it. Both give up after a minute.
"""

import signal
import subprocess
import sys
import time

from benchmarks.load.upstream import Server, serve_stdio

_SECONDS = 60


def main() -> None:
    (how,) = sys.argv[1:]
    if how == "ignores":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    else:
        for _ in range(2):
            subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({_SECONDS})"])
    serve_stdio(Server(10))
    if how == "ignores":
        time.sleep(_SECONDS)


if __name__ == "__main__":
    main()
