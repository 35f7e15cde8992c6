"""The metadata filter language: text, tree, and evaluation."""

from toolkit.filters.metadata.parsing import parse
from toolkit.filters.metadata.tree import (
    And,
    Comparison,
    Contains,
    Glob,
    HasField,
    Membership,
    MetadataFilter,
    Or,
)

__all__ = ["And", "Comparison", "Contains", "Glob", "HasField", "Membership", "MetadataFilter", "Or", "parse"]
