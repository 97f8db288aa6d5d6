"""From what was written to the typed experiment: names, the registry, defaults and arithmetic."""
