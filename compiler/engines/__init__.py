"""The engines, which start runs: on this machine, or on a cluster with Slurm, Kubernetes, Ray or SkyPilot. Only the
engine that a spec names is imported.

Each engine is a file or a folder of this package. It has an object `ENGINE`, its rules, the files that it adds to a
bundle, and the commands that submit the run. The table of `launch` settings lists the engines that read each setting
(language/launch_settings.py).
"""
