"""Real MCP servers, run as subprocesses."""
