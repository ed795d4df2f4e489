"""HugeCTR's Raw and RawAsync: one headerless file of records of a fixed size, four-byte words throughout.

A record is labels, numbers, and the keys of each slot, as many as its hotness. Numbers are float32, or uint32 counts
that HugeCTR takes by log(x + 1), as the derived schema does; labels are integers where the numbers are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lanner.data.formats.base import Format, Numbers, Options, Sink, Source, Target
from lanner.data.formats.records import Layout, RecordSink, RecordSource, Word
from lanner.data.formats.schemas import derived
from lanner.errors import ConfigError
from lanner.schema import Schema

MLPERF_HOTNESS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
MLPERF_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209, 11_938,
    155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
"""Ids a row and table sizes of MLPerf's multi-hot Criteo data; options take `mlperf` for them."""


def _preset(numbers: tuple[int, ...]) -> Any:
    return BeforeValidator(lambda value: numbers if value == "mlperf" else value)


Hotness = Annotated[Numbers, _preset(MLPERF_HOTNESS)]
Sizes = Annotated[Numbers, _preset(MLPERF_ROWS)]


class RawOptions(Options):
    """`dense`, `label`: types of the words (labels by default like the numbers). `offsets`: keys carry the offset of
    their slot. Where there is no schema: `labels` and `numbers` a record, `hotness` of each slot, and the `sizes` of
    their tables, which are measured where they are not given.
    """

    dense: Literal["float", "int"] = "float"
    label: Literal["float", "int"] | None = None
    offsets: bool = False
    labels: int = Field(default=1, ge=0)
    numbers: int = Field(default=13, ge=0)
    hotness: Hotness = ()
    sizes: Sizes = ()

    def layout(self) -> Layout:
        label: Word = "<i4" if (self.label or self.dense) == "int" else "<f4"
        return Layout(label, "<u4" if self.dense == "int" else "<f4", "<u4", self.offsets)

    def derive(self, uri: str) -> Schema:
        """From the counts alone; raises ConfigError where they do not say enough."""
        if not self.hotness:
            raise ConfigError(f"{uri}: no schema; give one, or the option hotness (ids of each slot: 1,1,3)")
        if self.sizes and len(self.sizes) != len(self.hotness):
            raise ConfigError(f"{uri}: {len(self.sizes)} sizes for {len(self.hotness)} slots")
        sizes = self.sizes or (None,) * len(self.hotness)
        slots = {f"C{at + 1}": pair for at, pair in enumerate(zip(sizes, self.hotness, strict=True))}
        return derived(label_names(self.labels), number_names(self.numbers), slots, self.dense == "int")


def label_names(count: int) -> list[str]:
    """Names of labels that have none: `label`, or `label1`, `label2`, ..."""
    return ["label"] if count == 1 else [f"label{at + 1}" for at in range(count)]


def number_names(count: int) -> list[str]:
    """Names of numbers that have none: Criteo's."""
    return [f"I{at + 1}" for at in range(count)]


class RawFormat(Format):
    name = "hugectr-raw"
    title = "HugeCTR Raw / RawAsync"
    options = RawOptions

    def recognises(self, uri: str) -> bool:
        return False  # headerless, and its names are also those of others

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        assert isinstance(options, RawOptions)
        return RecordSource(uri, schema or options.derive(uri), options.layout())

    def create(self, target: Target, options: Options) -> Sink:
        assert isinstance(options, RawOptions)
        return RecordSink(target, options.layout(), "HugeCTR's Raw format", options.chosen())
