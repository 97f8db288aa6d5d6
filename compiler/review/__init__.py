"""Format, compare, upgrade and verify specs, bundles and finished runs. `xpc check` does not load this package."""
