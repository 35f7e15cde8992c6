"""Analyses of frames, as pure functions.

Every function accepts a frame with the columns it names (pandas, Arrow, a snapshot, DuckDB, Dask), never
changes it, and returns a small pandas frame or a frozen value. Nothing here draws or sends a request.
"""

from toolkit.base.lazy_names import lazy_names
from toolkit.base.old_names import OLD_NAMES_OF_ANALYSIS

__all__, __getattr__, __dir__ = lazy_names(__name__, old_names=OLD_NAMES_OF_ANALYSIS)
