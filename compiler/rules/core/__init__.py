"""The decorator `rule`, the conditions of modules, the index of rules, and facts that rules of several topics need."""
