"""Engines: what starts a run, on one machine or on a cluster. Only the one that a spec names is imported.

Each is a file or a folder of this package with an `ENGINE`: the settings of `launch` that it reads, what is legal, the
files that it adds to a bundle, and how they are submitted.
"""
