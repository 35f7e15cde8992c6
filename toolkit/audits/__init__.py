"""Whether a vector index, and the scores it returns, can be trusted."""
