"""Rewrite whole lines of other notations, such as `- **Learning rate**: 2e-5`. Imported only for a wrong spec."""
