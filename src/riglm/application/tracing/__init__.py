"""Spans of clients' requests, and of what servers are asked for them."""
