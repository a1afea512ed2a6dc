"""The report of one RUN: document, kernels, step, retunes, tables, plots. Of ``report`` it may import no other room."""
