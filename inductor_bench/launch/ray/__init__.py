"""Jobs on a Ray cluster. The only files that know Ray; the executor's interface is ``launch.jobs``."""
