"""What results need to draw themselves: numbers as text, tables, styles, axes and bars."""
