"""What `riglm report` says: what was recorded, counted, and what it means."""
