"""Audits, comparisons, scores and plots of vectors, and changes of an index."""
