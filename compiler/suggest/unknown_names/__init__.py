"""Suggest what to write for an unknown name in a spec. This package is imported only for such a name.

`entry.py` is called first. It passes a name in a clause to `inside.py`, and any other name to `outside.py`. If these
have no suggestion, the name is passed to `search.py`, which asks `guess.py` for the most likely setting, and
`setting.py` for the text that suggests this setting. Each of these files has a list of functions (`steps`), which are
called one after another until one returns a suggestion.
"""
