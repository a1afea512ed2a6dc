"""The only files that touch private names of torch and Triton. They import no other file of the worker."""
