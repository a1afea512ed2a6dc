"""``observe`` where people work: callbacks of training libraries, and the fixture of pytest. Each loads on demand.

It may import records, report and workflows (for types): what it does is in the package's own functions.
"""
