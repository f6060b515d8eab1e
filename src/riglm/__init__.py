"""riglm: a drop-in MCP proxy that records which tools are used and keeps the next one at hand."""
