"""Errors, checks of arguments, times, and files of this user alone, for use by all other packages."""
