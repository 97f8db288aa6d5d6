"""Commands that are no stage of a compilation: lists, starters, the schema of settings, completion."""
