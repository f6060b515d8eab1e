"""Which tools a client is shown and may use: the one decision, its rules and reasons, and what riglm's own tools do."""
