"""A server that does what it is told: `python -IS scripted.py` with flags that are named like the fields of `Options`.

It speaks raw JSON-RPC in both eras over stdio, Streamable HTTP (`/mcp`) and HTTP with SSE (`/sse`), and writes down
every message that reached it, byte for byte. Over HTTP it prints `{"port": N}` on stdout once it listens.
Hundreds of tests start it, so it imports little.
"""

import sys

sys.path.insert(0, __file__.rpartition("/tests/")[0])

import asyncio  # the path comes first
import signal

from tests.interaction.servers.conversation import Conversation
from tests.interaction.servers.options import Options
from tests.interaction.servers.record import Record


def main() -> None:
    """Serve until the client leaves, a signal comes, or the server's lifetime is over."""
    options = Options.parse(sys.argv[1:])
    record = Record(options.log)
    record.event("started", arguments=sys.argv[1:])
    if options.banner:
        sys.stdout.buffer.write(options.banner.encode() + b"\n")
        sys.stdout.buffer.flush()
    if options.exit_at_start is not None:
        sys.exit(options.exit_at_start)
    if options.grandchild:
        import subprocess

        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({options.lifetime})"])
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.transport == "stdio":
        from tests.interaction.servers.over_stdio import serve_stdio as serve
    else:
        from tests.interaction.servers.over_http import serve_http as serve
    try:
        asyncio.run(serve(Conversation(options, record), options))
    except (KeyboardInterrupt, TimeoutError):
        sys.exit(1)
    record.event("ended")


if __name__ == "__main__":
    main()
