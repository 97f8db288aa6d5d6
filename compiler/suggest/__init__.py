"""Suggest what the user probably meant by a wrong name or value in a spec. This package is imported only after an
error.
"""
