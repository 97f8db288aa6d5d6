"""What of the libraries' private code a run replaces or overrides, gathered: one module a library.

README.md lists each with its reason. A bundle has the modules that its run uses.
"""
