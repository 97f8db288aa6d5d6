"""What of the libraries' private code a run replaces or overrides: one module a library, listed in README.md."""
