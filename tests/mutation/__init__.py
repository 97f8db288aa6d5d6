"""Mutation tests: a program changes random lines of the source, and checks that a test that covers the line fails."""
