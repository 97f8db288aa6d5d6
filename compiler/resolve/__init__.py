"""Resolve what a spec states into a typed experiment: names, the registry, defaults and arithmetic."""
