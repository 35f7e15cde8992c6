"""Plots of frames with matplotlib.

Every function accepts a frame and optionally `ax`, and returns the `Axes`. Results such as `FailureGroups`
have a method `plot` of their own.
"""

from toolkit.base.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
