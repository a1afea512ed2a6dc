"""The command line. Each verb has a file, which parses the options, calls the workflow, renders the result and returns
the exit code.

Click lives only here. Importing this room loads neither torch nor anything that draws. It may import records, devices,
store, report, workflows, analysis and launch.
"""
