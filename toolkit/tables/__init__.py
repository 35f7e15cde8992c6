"""Bytes become Arrow tables with explicit schemas, and Arrow tables become pandas frames."""
