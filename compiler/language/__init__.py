"""The language of specs: the table of all settings, and the code that turns the syntax tree of a spec into settings
with values.
"""
