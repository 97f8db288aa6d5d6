"""Source text to entries with line numbers: YAML, JSON and shell scripts."""
