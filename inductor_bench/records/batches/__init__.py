"""Records of batches: the state of each model, and the figures of all models."""
