"""One of the eight servers, on pipes.

python -m benchmarks.warm_start.upstream NAME
"""

import sys

from benchmarks.load.upstream import Server, serve_stdio
from benchmarks.warm_start.work import servers

if __name__ == "__main__":
    serve_stdio(Server(servers()[sys.argv[1]]))
