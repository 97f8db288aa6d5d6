"""Suggest what to write for an unknown name in a spec. This package is imported only for such a name."""
