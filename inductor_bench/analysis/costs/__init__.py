"""What kernels and graphs cost the program. Of ``analysis`` it imports nothing else."""
