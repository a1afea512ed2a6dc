"""For tests only: see ``rare_collection``. A test that puts a ``sitecustomize`` before this one imports it there."""

import rare_collection  # noqa: F401
