"""Which piece of work a call belongs to, and what is kept of it while it lasts."""
