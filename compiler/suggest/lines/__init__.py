"""Rewrite whole lines that only resemble the language. Imported only for a wrong spec."""
