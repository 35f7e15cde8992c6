"""The command ``toolkit``: the same functions from a shell, one module per command.

`command_line` reads the command line and turns errors into an exit status. The module of a command is
imported when that command is run: help and small commands start fast.
"""

from toolkit.cli.command_line import main

__all__ = ["main"]
