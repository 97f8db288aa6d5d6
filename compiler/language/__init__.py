"""The language: the table of settings, and the step from a syntax tree to the settings that a spec states."""
