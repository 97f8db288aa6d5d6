"""`xpc explain`, and the documentation pages that are generated from the same tables: of settings, rules and stacks."""
