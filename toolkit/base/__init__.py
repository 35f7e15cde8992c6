"""What every other package may use: errors, checked arguments, times, files that only the user can read."""
