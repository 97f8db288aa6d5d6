"""Import torchtune's YAML."""
