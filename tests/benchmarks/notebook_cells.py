"""Cells of notebooks that several benchmarks run."""

MANY_FAILURES = """
import pandas as pd
import toolkit as tk
some = tk.load_failures(tk.connect(), progress=False)
failures = pd.concat([some] * max(1, {rows} // len(some)), ignore_index=True).head({rows})
failures["dlq_id"] = [f"dlq_{{number}}" for number in range(len(failures))]
failures.attrs = {{}}
"""
"""A cell with the frame `failures`: the failures of the sample, repeated, each row with its own id."""
