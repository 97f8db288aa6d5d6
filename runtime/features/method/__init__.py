"""Features for training methods: references, rewards, teachers, generation."""
