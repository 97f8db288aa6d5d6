"""The model, its tokenizer and its weights."""
