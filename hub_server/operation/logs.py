"""The server's log on stderr: one line per event, as text for people or as JSON for machines.

No secret may come in here: of a request, `requests.py` says what is logged; of a failed statement SQLAlchemy hides the
values; every other line is written by hand.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

logger = logging.getLogger("hub_server")
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Which request the present task or thread works for; every line that it logs carries it."""


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important lines that are written. `debug` adds the requests of monitors."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(log_format: LogFormat, level: LogLevel) -> None:
    """Send the lines of the server, and the warnings of what it stands on, to stderr; once in a process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logger.setLevel(level.upper())


def log(level: int, message: str, **fields: Any) -> None:
    """Write one line: words that stay the same for the same kind of event, and what differs as fields."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"fields": fields})


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, the fields, and a traceback as `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        line["message"] = record.getMessage()
        if identifier := request_id.get():
            line["request_id"] = identifier
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """Time, level, words, then `name=value` for each field; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        parts = [_time(record), f"{record.levelname.lower():7}", record.getMessage()]
        fields = getattr(record, "fields", {})
        parts += [f"{name}={_plain(value)}" for name, value in fields.items() if value is not None]
        if identifier := request_id.get():
            parts.append(f"id={identifier}")
        text = " ".join(parts)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    """Return a value as one word; what holds blanks or line breaks is quoted."""
    text = str(value)
    return text if text.isprintable() and text and " " not in text else json.dumps(text)
