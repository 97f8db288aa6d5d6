"""Read and write files: the workspace of a spec, standard streams, bundles on disk, digests."""
