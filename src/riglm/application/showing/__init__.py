"""What stands between a client and the whole list: the filter, on the wire of both eras."""
