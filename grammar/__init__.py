"""Parse specs to syntax trees, and format trees as text. This package knows the syntax, but no settings."""
