"""What happened, noted without any call waiting for it, and kept."""
