"""Plots: functions that draw a frame on Axes and return the Axes. `toolkit.analysis` computes the data."""
