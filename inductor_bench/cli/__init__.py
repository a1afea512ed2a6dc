"""The command line: one file per verb, which parses, calls the workflow, renders and gives the exit code.

Click lives only here. Importing this room loads neither torch nor anything that draws. It may import records, devices,
store, report, workflows, analysis and launch.
"""
