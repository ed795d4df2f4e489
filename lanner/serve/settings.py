"""What a model's `config.pbtxt` means for the server."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import ModelConfig

from lanner.export.config import MAX_QUEUE
from lanner.serve.batcher import Policy


def policy(config: ModelConfig) -> Policy:
    """How the requests of the model are batched."""
    batching = config.dynamic_batching
    queue = batching.default_queue_policy
    return Policy(
        max_rows=config.max_batch_size,
        dynamic=config.HasField("dynamic_batching"),
        preferred=tuple(batching.preferred_batch_size),
        max_delay_ns=batching.max_queue_delay_microseconds * 1000,
        max_queue=queue.max_queue_size if config.HasField("dynamic_batching") else MAX_QUEUE,
        timeout_us=queue.default_timeout_microseconds,
    )


def instances(config: ModelConfig) -> int:
    """Number of batches that may run at the same time."""
    return sum(max(group.count, 1) for group in config.instance_group) or 1


def to_json(message: Message) -> dict[str, Any]:
    """A message as a dictionary with its own field names, defaults included and 64-bit integers as numbers."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            found[field.name] = _enumerate(field, value)
        elif field.message_type.GetOptions().map_entry:
            nested = field.message_type.fields_by_name["value"].message_type
            found[field.name] = {key: to_json(value[key]) if nested else value[key] for key in value}
        elif _repeated(field):
            found[field.name] = [to_json(item) for item in value]
        elif message.HasField(field.name):
            found[field.name] = to_json(value)
    return found


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _enumerate(field: Any, value: Any) -> Any:
    """A scalar or a list of them; enumeration values by name."""
    if _repeated(field):
        return [_enumerate_one(field, item) for item in value]
    return _enumerate_one(field, value)


def _enumerate_one(field: Any, value: Any) -> Any:
    return field.enum_type.values_by_number[value].name if field.enum_type else value
