"""What rules are made of: the decorator, conditions, the index, and facts that several topics share."""
