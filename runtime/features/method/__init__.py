"""Training methods: references, rewards, teachers, generation."""
