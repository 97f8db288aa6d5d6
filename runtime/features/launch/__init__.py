"""What is looked up before a run starts: packages and files."""
