"""Structured logs: text on a terminal, JSON lines otherwise.

`setup()` once per process; everywhere else `log = get_logger(__name__)` and `log.info("what happened", field=value)`.
Plain `logging` loggers come out in the same format.  Values of secret fields, and keys inside messages, never appear.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any, TextIO

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
QUIET_LOGGERS = ("asyncio", "filelock", "fsspec", "grpc", "httpcore", "httpx", "huggingface_hub", "urllib3", "uvicorn")
MASK = "***"

_secret_name = re.compile(
    r"api_?key|secret|password|authorization|credential|(^|_)(access|auth|hf|bearer)_?token$", re.I
)
_secret_text = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{8,}|\b(sk-|hf_)[\w-]{8,}")


class Logger:
    """A logger whose keyword arguments become fields of the line."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, message: str, /, **fields: Any) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: Any) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: Any) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: Any) -> None:
        self._log(logging.ERROR, message, fields)

    def exception(self, message: str, /, **fields: Any) -> None:
        """An error with the trace of the exception that is being handled: for faults of ours only."""
        self._log(logging.ERROR, message, fields, has_trace=True)

    def _log(self, level: int, message: str, fields: dict[str, Any], has_trace: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", message, extra={"fields": fields}, exc_info=has_trace, stacklevel=3)


def get_logger(name: str) -> Logger:
    return Logger(logging.getLogger(name))


def setup(service: str, level: str = "info", log_format: str = "auto", stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream` (default stderr), under the name `service`.

    `log_format` is `text`, `json`, or `auto`: text where the stream is a terminal.  Libraries speak from `warning` on.
    May be called again; the last call counts.
    """
    stream = sys.stderr if stream is None else stream
    is_text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter(service) if is_text else JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(LEVELS[level], logging.WARNING))


def redact(text: str) -> str:
    """`text` with everything that looks like a key or a bearer token masked."""
    return _secret_text.sub(lambda match: (match[1] or match[2]) + MASK, text)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", {})
    return {name: _shown(name, value) for name, value in fields.items()}


def _shown(name: str, value: Any) -> Any:
    if _secret_name.search(name) and value:
        return MASK
    if isinstance(value, bool | int | float) or value is None:
        return value
    return redact(str(value))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, service, logger, message, and the fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        line.update({name: value for name, value in _fields_of(record).items() if name not in line})
        if record.exc_info and record.exc_info[0]:
            line["trace"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """`12:30:01 INFO  gateway: message (field=value)`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = format_line(self._service, record.levelname, redact(record.getMessage()), _fields_of(record))
        if record.exc_info and record.exc_info[0]:
            text += "\n" + redact(self.formatException(record.exc_info))
        return f"{clock} {text}"


def format_line(service: str, level: str, message: str, fields: dict[str, Any]) -> str:
    """A log line for people, without the time."""
    pairs = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{level.upper():<7} {service}: {message}" + (f" ({pairs})" if pairs else "")


def _utc(created_s: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created_s))
    return f"{whole}.{int(created_s % 1 * 1000):03d}Z"
