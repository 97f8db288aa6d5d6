"""Parse specs to syntax trees, and write trees as text. Nothing here knows machine learning."""
