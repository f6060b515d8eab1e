"""A client in front of one server, in both eras, and the bridge between them."""
