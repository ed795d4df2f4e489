"""Files on other machines: bounded in time, tried again, errors that name the URI, and whole or not there."""

from lanner.remote.access import attempt, file_system
from lanner.remote.reading import Reader
from lanner.remote.writing import UNPUBLISHED, renames, whole

__all__ = ["UNPUBLISHED", "Reader", "attempt", "file_system", "renames", "whole"]
