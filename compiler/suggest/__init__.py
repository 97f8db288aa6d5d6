"""Suggestions for wrong names and values. Imported only after an error."""
