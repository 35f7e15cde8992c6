"""Audits that check whether a vector index, and the scores that it returns, can be trusted."""
