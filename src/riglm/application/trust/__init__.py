"""Tool definitions that were approved, and what becomes of tools that changed since."""
