"""`xpc preview`: show the rows of a spec as the trainer gets them, and which tokens count in the loss."""
