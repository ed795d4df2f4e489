"""The `lanner` command: one file a command, each a thin layer over the package."""
