"""Work from a failure to its fix: the failed request as a value and as code, and sent again."""
