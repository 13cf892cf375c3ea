"""Snakemake's logger plugin `strop`: progress in a study's own words, on stderr."""

from logging import LogRecord

from snakemake_interface_logger_plugins.base import LogHandlerBase

from strop.progress import Progress


class LogHandler(LogHandlerBase):
    """Hands each record to `strop.progress`."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.common_settings)

    def emit(self, record: LogRecord) -> None:
        """Show a record."""
        self.progress.show(record)

    @property
    def writes_to_stream(self) -> bool:
        """It takes the place of Snakemake's own output."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """It writes no file; Snakemake keeps its own log."""
        return False

    @property
    def has_filter(self) -> bool:
        """It sees all records and chooses."""
        return True

    @property
    def has_formatter(self) -> bool:
        """It formats them itself."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """It does not need it."""
        return False
