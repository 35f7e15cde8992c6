"""Errors that hardly any runbook is about.

Their scores tell how near any error is to a runbook by chance. They are errors of programs and devices that
do not send messages to a queue, so that a team has no runbook for them.
"""

from __future__ import annotations

from typing import Final

UNRELATED_ERRORS: Final = (
    "TelescopeError: dome did not close before sunrise at slit 2",
    "assertion failed: chess clock of player black is negative",
    "Aquarium pump 7 reports no flow",
    "ParseError: unknown opcode 0x7f in cartridge header",
    "weather balloon lost its position above 18 km",
    "CompileError: missing semicolon in shader water.frag at line 12",
    "ValueError: crossword has no solution for 14 across",
    "The choir score has a bar of seven beats in 4/4",
    "seismograph: clipped signal on channel Z",
    "RuntimeError: tensor of size 128 does not match size 64 in dimension 1",
    "Loom tension is outside of the permitted range",
    "Exception: puzzle piece 311 is missing from the scan",
    "fatal: savegame was written by a newer version of the game",
    "Spectrometer needs a reference measurement first",
    "KeyError: 'shortest_path' in graph of hiking trails",
    "horse 4 was scratched from the race before the start",
    "IllegalStateException: tram departed without a driver id",
    "Beehive scale shows 0 kg since Monday",
    "museum label has more than 400 characters",
    "TypeError: unsupported operand for vector of tide heights",
    "CNC mill: spindle speed not reached within 5 s",
    "Subtitle 88 overlaps with subtitle 89",
    "LookupError: no glyph for U+1F9A5 in the poster font",
    "The greenhouse window is blocked by snow",
)
