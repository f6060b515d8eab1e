"""Which tools a client is shown and may use: the one decision, its rules, its reasons, and riglm's own tools."""
