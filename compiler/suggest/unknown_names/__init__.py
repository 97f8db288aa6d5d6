"""Suggest what to write instead of a name that is no setting at its place. Imported only for such a name.

`entry.py` is called first. A name in a clause goes through the steps of `inside.py`, any other through those of
`outside.py`. A name that these steps do not answer goes to `search.py`, for which `guess.py` guesses the setting;
`setting.py` writes the suggestion of a setting. Each of these files lists its steps in order: the first that answers
wins.
"""
