"""Suggest what to write for an unknown name in a spec. This package is imported only for such a name.

`entry.py` is called first. A name in a clause goes through the steps of `inside.py`, any other through those of
`outside.py`. A name for which these steps return no suggestion goes to `search.py`. `search.py` asks `guess.py` for the
most likely setting, and `setting.py` for the text that suggests this setting. Each file lists its steps. They are
tried one after another until one returns a suggestion.
"""
