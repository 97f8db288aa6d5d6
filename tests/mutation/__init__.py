"""Mutation tests: lines of the source are broken at random, and the tests that cover them should fail."""
