"""``python -m lanner``: the command line, in the form in which ``torchrun -m lanner`` starts it."""

from lanner.cli.main import run

run()
