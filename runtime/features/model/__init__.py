"""Features for the model, its tokenizer and its weights."""
