"""Signatures of failures: one id for each kind of failure, whatever its numbers, ids and line numbers are."""

from toolkit.signatures.signing import RULES_VERSION, error_signatures

__all__ = ["RULES_VERSION", "error_signatures"]
