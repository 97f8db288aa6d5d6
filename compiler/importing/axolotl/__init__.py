"""axolotl's YAML."""
