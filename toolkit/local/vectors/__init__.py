"""The vector half of the embedded service: durable indexes, exact search, and their routes."""
