"""Read and write files: the files that a spec names, bundles on disk, digests of files, and standard streams."""
