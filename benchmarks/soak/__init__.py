"""Hours of mixed use with crashes and outages: memory, files, threads and latency."""
