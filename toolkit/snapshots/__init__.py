"""Snapshots: Parquet files that are written completely or not at all, and that any reader opens."""

from toolkit.base.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
