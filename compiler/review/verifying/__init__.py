"""The parts of `xpc verify`: the expected files, the differences, runs, and repositories."""
