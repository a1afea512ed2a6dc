"""The pages of the documentation that ``scripts/docs`` makes from the code."""
