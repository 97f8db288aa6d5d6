"""Code that replaces or overrides private code of the libraries: one module per topic, listed in README.md."""
