"""The experiment language: text to tree, and back. It knows nothing about machine learning."""
