"""A server that does what it is told: `python scripted.py --help`.

It speaks raw JSON-RPC in both eras over stdio, Streamable HTTP (`/mcp`) and HTTP with SSE (`/sse`), and writes down
every message that reached it, byte for byte. Over HTTP it prints `{"port": N}` on stdout once it listens.
"""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.interaction.servers.conversation import Conversation  # the path comes first
from tests.interaction.servers.options import Options
from tests.interaction.servers.over_http import serve_http
from tests.interaction.servers.over_stdio import serve_stdio
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
        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({options.lifetime})"])
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve = serve_stdio if options.transport == "stdio" else serve_http
    try:
        asyncio.run(serve(Conversation(options, record), options))
    except (KeyboardInterrupt, TimeoutError):
        sys.exit(1)
    record.event("ended")


if __name__ == "__main__":
    main()
