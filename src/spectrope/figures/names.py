"""What runs are called in figures: short where they can be, longer where two would share a name."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ENCODING = ("model.encoding.", "model.attention.")


def name_runs(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The setting and the encoding of each run, such as ("distance", "rope").

    A setting is the task, with condition and scale where they differ among the runs, and "tuned" where only
    some have a learning rate from a grid. Where two runs would
    still share setting, encoding and seed, the fields that tell them apart are added.
    """
    settings = [_setting(config, configs) for config in configs]
    encodings = [str(config["encoding_name"]) for config in configs]
    flat = [dict(_flatten(config)) for config in configs]
    extra = _telling_fields(flat, list(zip(settings, encodings, (c["seed"] for c in configs), strict=True)))
    of_encoding = [field for field in extra if field.startswith(ENCODING)]
    of_setting = [field for field in extra if field not in of_encoding]
    return [
        (_extended(setting, fields, of_setting), _extended(encoding, fields, of_encoding))
        for setting, encoding, fields in zip(settings, encodings, flat, strict=True)
    ]


def _setting(config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]) -> str:
    varied = [field for field in ("condition", "scale") if len({str(c[field]) for c in configs}) > 1]
    kinds = {c.get("tuning") for c in configs}
    found = [str(config["task"]["kind"]), *(str(config[field]) for field in varied)]
    if config.get("tuning") == "chosen" and len(kinds) > 1:
        found.append("tuned")
    return ", ".join(found)


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a nested configuration under its dotted name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}{key}.")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _flatten(inner, f"{prefix}{index}.")
    else:
        yield prefix.removesuffix("."), value


def _telling_fields(flat: Sequence[Mapping[str, Any]], keys: Sequence[tuple]) -> list[str]:
    groups = defaultdict(list)
    for fields, key in zip(flat, keys, strict=True):
        groups[key].append(fields)
    found: dict[str, None] = {}
    for group in groups.values():
        for field in dict.fromkeys(name for fields in group for name in fields):
            if len({repr(fields.get(field)) for fields in group}) > 1:
                found[field] = None
    return list(found)


def _extended(name: str, fields: Mapping[str, Any], extra: Sequence[str]) -> str:
    parts = [f"{field.rsplit('.', 1)[-1]} {fields[field]}" for field in extra if field in fields]
    return ", ".join([name, *parts])
