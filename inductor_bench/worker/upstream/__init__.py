"""The only files that use private names of torch and Triton. They import no other file of the worker."""
