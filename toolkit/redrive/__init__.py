"""Acting on failures: a plan of exact entries, its run in waves, and the ledger that remembers every step."""
