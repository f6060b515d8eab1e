"""What transcripts of earlier work are worth on the first day."""
