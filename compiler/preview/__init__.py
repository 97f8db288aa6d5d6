"""`xpc preview`: show the rows of a spec as its trainer gets them, and which of their tokens count in the loss."""
