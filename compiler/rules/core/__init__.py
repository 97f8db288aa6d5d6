"""What rules are made of: the decorator, conditions, the index of rules, and facts that several topics need."""
