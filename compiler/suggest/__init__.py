"""What a wrong name or value was meant to be. Imported only after an error."""
