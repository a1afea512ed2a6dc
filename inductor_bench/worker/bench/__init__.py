"""Standalone kernel files loaded into this process: checked, timed, their candidates built."""
