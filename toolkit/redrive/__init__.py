"""Act on failures: plan exact entries, run the plan in waves, and store every step in a ledger."""
