"""The server behind riglm, on pipes.

python -m benchmarks.first_answer.upstream TOOLS
"""

import sys

from benchmarks.first_answer.work import tools
from benchmarks.load.upstream import Server, serve_stdio

if __name__ == "__main__":
    serve_stdio(Server(tools(int(sys.argv[1]))))
