"""What one RUN says: document, kernels, step, retunes, tables, plots. Of ``report`` it may import no other room."""
