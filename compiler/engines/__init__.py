"""Engines start a run on one machine or on a cluster. Only the engine that a spec names is imported.

Each is a file or a folder of this package with an `ENGINE`: its rules, the files that it adds to a bundle, and how they
are submitted. The settings of `launch` that it reads are a column of the table (language/launch_settings.py).
"""
