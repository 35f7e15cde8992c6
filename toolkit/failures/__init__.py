"""Analyses of failures: counts, groups, classes, incidents, explanations, and their plots."""
