"""Rules about precision, kernels, packing and the batch."""
