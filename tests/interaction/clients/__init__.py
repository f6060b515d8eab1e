"""Raw MCP clients that see every byte."""
