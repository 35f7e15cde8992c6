"""Plots: a frame and an Axes in, an Axes out. The data are computed in `toolkit.analysis`."""
