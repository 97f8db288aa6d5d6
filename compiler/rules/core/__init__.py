"""The decorator `rule`, the conditions `WHEN` of modules, the index of rules, and facts that rules of several topics
need.
"""
