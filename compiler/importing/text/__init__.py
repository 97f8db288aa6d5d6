"""Read YAML, JSON and shell scripts as entries with line numbers."""
