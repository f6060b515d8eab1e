"""Several servers in front of a client as one, in both eras."""
