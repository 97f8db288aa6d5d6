"""The kinds of differences between two runs: values, emitted arguments, files and packages."""
