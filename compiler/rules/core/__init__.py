"""The parts of rules: the decorator, conditions, the index, and facts that several topics share."""
