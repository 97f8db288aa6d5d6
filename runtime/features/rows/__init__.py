"""Features for rows: sources, shapes, mixtures and token counts."""
