"""Several processes as one: connections, sessions and news that they share."""
