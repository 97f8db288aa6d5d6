"""The trainer of a bundle: plain Python over TRL, for Python 3.11 and later."""

import os
import sys

# the other modules of this package need Python 3.11, but a user may start the trainer with an older Python
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"error: Python 3.11 or later is needed, and {sys.executable} is {sys.version.split()[0]}")
if "." not in __name__:  # bytecode in a bundle may be older than its source, so Python neither reads nor writes it
    from importlib.machinery import FileFinder, SourceFileLoader

    class _Source(SourceFileLoader):
        def get_code(self, fullname: str) -> object:  # type: ignore[override]
            return self.source_to_code(self.get_data(self.path), self.path)

    _bundle = os.path.dirname(__path__[0])
    _inside = (__path__[0], os.path.join(_bundle, "files"), os.path.join(_bundle, "data"))

    def _finder(path: str) -> FileFinder:
        inside = path == _bundle or any((path + os.sep).startswith(one + os.sep) for one in _inside)
        if not inside or not os.path.isdir(path):  # for other folders, Python uses its default finder
            raise ImportError
        return FileFinder(path, (_Source, [".py"]))

    sys.path_hooks.insert(0, _finder)
    for _place in (_bundle, __path__[0]):
        sys.path_importer_cache.pop(_place, None)
