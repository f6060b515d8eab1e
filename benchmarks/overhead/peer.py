"""FastMCP's create_proxy, as its documentation shows it: peer.py stdio|PORT (URL | -- COMMAND...).

Runs in an environment of its own, so it imports nothing of ours.
"""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

where, first, *command = sys.argv[1:]
target = StdioTransport(command[0], command[1:]) if first == "--" else first
proxy = create_proxy(target, name="proxy")
if where == "stdio":
    proxy.run(transport="stdio", show_banner=False)
else:
    proxy.run(transport="http", host="127.0.0.1", port=int(where), show_banner=False, log_level="error")
