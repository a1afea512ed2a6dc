"""The command line. Each verb has a file, which parses the options, calls the workflow, renders the result and returns
the exit code.

Click is imported only here. Importing this folder loads neither torch nor a drawing library.
"""
