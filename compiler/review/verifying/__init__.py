"""The parts of `xpc verify`: the expected files, the differences from them, finished runs, and repositories."""
