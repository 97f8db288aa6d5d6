"""`xpc preview`: rows of a spec as its trainer gets them, and what is learned from them."""
