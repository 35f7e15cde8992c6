"""Analyses of frames, as pure functions.

Every function accepts a frame with the columns it names (pandas, Arrow, a snapshot, DuckDB, Dask), never
changes it, and returns a small pandas frame or a frozen value. Nothing here draws or sends a request.
"""

from toolkit.analysis.change_points import change_points as change_points  # the module has its name
from toolkit.analysis.drift import drift as drift  # likewise
from toolkit.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
