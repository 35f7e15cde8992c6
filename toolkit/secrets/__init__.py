"""Find secrets in text, headers and JSON, and mask them."""
