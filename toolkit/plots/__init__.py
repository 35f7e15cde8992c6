"""Plots: a frame and an Axes in, an Axes out. The data are computed in `toolkit.analysis`.

``style.py`` holds colours and hatches, ``axis.py`` axes and legends, ``plot_text.py`` text from data,
``svg.py`` figures inside a page.
"""
