"""`config.pbtxt`: written and read with the protocol's own message, `ModelConfig`."""

from __future__ import annotations

import os

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.grpc.model_config_pb2 import ModelConfig

from lanner import storage
from lanner.errors import ConfigError
from lanner.export.signature import Input, encoded_inputs, raw_inputs
from lanner.schema import Schema

FILE = "config.pbtxt"
MAX_BATCH_SIZE = 4096
PREFERRED = (256, 1024)
MAX_QUEUE = 2048
BACKEND = "lanner"


def default_config(name: str) -> ModelConfig:
    """Settings of a model that has none of its own: dynamic batching without delay and a bounded queue."""
    config = ModelConfig(name=name, platform=BACKEND, backend=BACKEND, max_batch_size=MAX_BATCH_SIZE)
    config.version_policy.latest.num_versions = 1
    config.dynamic_batching.preferred_batch_size.extend(PREFERRED)
    config.dynamic_batching.default_queue_policy.max_queue_size = MAX_QUEUE
    config.dynamic_batching.default_queue_policy.allow_timeout_override = True
    config.instance_group.add(name=name, count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    return config


def describe_model(config: ModelConfig, schema: Schema, outputs: int) -> None:
    """Set the inputs, the output and the schema parameter of `config` from the model's schema."""
    del config.input[:]
    del config.output[:]
    for declared in (*encoded_inputs(schema), *raw_inputs(schema)):
        config.input.add(name=declared.name, data_type=_data_type(declared), dims=declared.dims, optional=True)
    config.output.add(name="score", data_type=model_config_pb2.TYPE_FP32, dims=[outputs])
    config.parameters["schema"].string_value = schema.model_dump_json()


def parse(text: str, source: str) -> ModelConfig:
    """Parse `config.pbtxt`; ConfigError naming file, line and column, and quoting the line."""
    config = ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        line = error.GetLine()
        quoted = text.splitlines()[line - 1].strip() if line and line <= len(text.splitlines()) else ""
        hint = " (an unfilled template variable?)" if "${" in quoted else ""
        raise ConfigError(f"{source}: {error}: {quoted!r}{hint}") from error
    return config


def load(directory: str | os.PathLike[str], name: str) -> ModelConfig:
    """The settings of the model `name` in its repository directory; the defaults where it has no config.pbtxt."""
    path = storage.join(directory, FILE)
    config = parse(storage.read_text(path), path) if storage.exists(path) else default_config(name)
    if config.name and config.name != name:
        raise ConfigError(f"{path}: name is {config.name!r}, but the model's directory is {name!r}")
    if config.max_batch_size < 1:
        raise ConfigError(f"{path}: max_batch_size is {config.max_batch_size}, expected at least 1")
    if config.HasField("sequence_batching"):
        raise ConfigError(f"{path}: sequence_batching is not supported; use dynamic_batching")
    sizes = config.dynamic_batching.preferred_batch_size
    if any(not 0 < size <= config.max_batch_size for size in sizes):
        raise ConfigError(f"{path}: preferred_batch_size {list(sizes)} must lie in 1..{config.max_batch_size}")
    config.name = name
    return config


def _data_type(declared: Input) -> int:
    kind = "STRING" if declared.datatype == "BYTES" else declared.datatype
    return int(getattr(model_config_pb2, f"TYPE_{kind}"))


def to_text(config: ModelConfig) -> str:
    """`config` as `config.pbtxt`."""
    return str(text_format.MessageToString(config))
