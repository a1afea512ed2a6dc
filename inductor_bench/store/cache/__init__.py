"""What this tool keeps outside any RUN, in the user's cache folder."""
