"""Parsers of stack traces, one module per language. `signatures/traces.py` chooses the parser."""
