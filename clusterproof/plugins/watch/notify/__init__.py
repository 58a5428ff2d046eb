"""Who is told of what changes: an outbox for each receiver, on disk, and heartbeats."""
