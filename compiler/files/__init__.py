"""Reading and writing: the workspace of a spec, standard streams, bundles on disk, digests."""
