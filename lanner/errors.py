"""The errors Lanner raises. Each names what was wrong, where, the value seen and what was expected."""


class LannerError(Exception):
    """Base of every error a user can cause; the command line prints it without a traceback."""


class SchemaError(LannerError):
    """A schema is invalid, or two schemas that must agree differ."""


class DataError(LannerError):
    """Input data breaks the contract of its format (a bad field, a short file, a wrong checksum)."""


class IdRangeError(DataError):
    """An id lies outside its embedding table."""


class ConfigError(LannerError):
    """A recipe, option or configuration file holds something that cannot be used."""


class RemoteError(LannerError):
    """A remote file system cannot be reached, or does not do what it was asked."""


class MissingExtraError(LannerError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'lanner[{extra}]'")


class ExportError(LannerError):
    """An exported model does not give the scores of the model it was made from."""
