"""Shift the clock of a Python process when it starts, if ``SIMULATED_TIME`` says which time it is.

Python imports a module of this name at each start, if its folder is on ``PYTHONPATH``.
"""

import os
from datetime import datetime

from shifted_clock import shift_clock_to

if "SIMULATED_TIME" in os.environ:
    shift_clock_to(datetime.fromisoformat(os.environ["SIMULATED_TIME"]))
