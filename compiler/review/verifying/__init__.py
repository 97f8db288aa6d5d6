"""The parts of `xpc verify`: computing the expected files, comparing files, finished runs, and whole folders."""
