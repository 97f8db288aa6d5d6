"""Import axolotl's YAML."""
