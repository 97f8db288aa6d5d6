"""`xpc explain`, and the pages that are generated from the same tables."""
