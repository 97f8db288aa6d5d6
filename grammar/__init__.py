"""The experiment language: text to tree, and back. Knows no machine learning."""
