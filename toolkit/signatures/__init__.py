"""Errors of response bodies: reading them, one line for each, and one id for each kind of failure."""
