"""Darknet's configuration file: sections of options, one for each layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tallybox.errors import InputError

LARGEST_FILE = 1_000_000  # bytes; those of Darknet have a few thousand
LARGEST_SIZE = 8192  # of any width, number of filters or the like: a file must not make us allocate what it likes


@dataclass(frozen=True)
class Section:
    """One ``[name]`` of a file with its options; ``where`` names file and line for messages."""

    name: str
    where: str
    options: dict[str, str] = field(default_factory=dict)

    def text(self, option: str, default: str | None = None) -> str:
        """Return an option as it stands."""
        if option in self.options:
            return self.options[option]
        if default is None:
            raise InputError(f"{self.where}: [{self.name}] must have {option}, but it is missing")
        return default

    def number(self, option: str, default: int | None = None, *, least: int = 0) -> int:
        """Return a whole number of at least ``least``."""
        text = self.text(option, None if default is None else str(default))
        try:
            value = int(text)
        except ValueError:
            raise self._wrong(option, "a whole number") from None
        if not least <= value <= LARGEST_SIZE:
            raise self._wrong(option, f"from {least} to {LARGEST_SIZE}")
        return value

    def real(self, option: str, default: float) -> float:
        """Return a number."""
        try:
            return float(self.text(option, str(default)))
        except ValueError:
            raise self._wrong(option, "a number") from None

    def numbers(self, option: str) -> list[int]:
        """Return whole numbers that commas separate."""
        try:
            return [int(part) for part in self.text(option).split(",")]
        except ValueError:
            raise self._wrong(option, "whole numbers with commas between them") from None

    def must_be(self, option: str, only: str, default: str) -> None:
        """Raise unless an option has the one value that is supported."""
        if self.text(option, default) != only:
            raise self._wrong(option, f"{only}, the only one supported")

    def _wrong(self, option: str, expected: str) -> InputError:
        return InputError(
            f"{self.where}: {option} of [{self.name}] must be {expected}, but got {self.text(option, '')!r}"
        )


def read_config(path: Path) -> list[Section]:
    r"""Read a ``.cfg``, whose first section is the network itself.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "small.cfg"
    ...     _ = file.write_text("[net]\nwidth = 416 # pixels\n[maxpool]\nsize=2\n")
    ...     [(section.name, section.options) for section in read_config(file)]
    [('net', {'width': '416'}), ('maxpool', {'size': '2'})]
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} must be a Darknet configuration, but it has {path.stat().st_size} bytes")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a Darknet configuration, but it cannot be read: {error}") from None
    sections: list[Section] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#")[0].split(";")[0].strip()
        where = f"{path}, line {number}"
        if not content:
            continue
        if content.startswith("[") and content.endswith("]"):
            sections.append(Section(content[1:-1].strip(), where))
        elif "=" in content and sections:
            option, value = content.split("=", 1)
            sections[-1].options[option.strip()] = value.strip()
        else:
            raise InputError(f"{where} must be [section] or option=value, but got {content[:40]!r}")
    if not sections or sections[0].name not in ("net", "network"):
        raise InputError(f"{path} must be a Darknet configuration, which begins with [net], but this does not")
    return sections
