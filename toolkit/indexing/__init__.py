"""What changes a vector index: rows stored or updated, vectors and namespaces removed, snapshots restored."""
