"""Tools with which results draw themselves: numbers as text, tables, styles, axes and bars."""
