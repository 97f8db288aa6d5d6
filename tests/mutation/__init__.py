"""The tests are tested: the source is broken in random places, and the tests that cover each are run."""
