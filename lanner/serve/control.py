"""Which models are loaded: reads a repository, loads, swaps and unloads versions, and reports on them."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from lanner import manifest
from lanner.errors import ConfigError
from lanner.export import config as configs
from lanner.serve import settings
from lanner.serve.batcher import Batcher
from lanner.serve.failure import RequestError
from lanner.serve.model import ServedModel
from lanner.serve.statistics import Statistics

VERSION = re.compile("[1-9][0-9]*")
REFUSED = (
    "explicit model load / unload is not allowed if polling is enabled; start the server with --model-control explicit"
)
"""Triton's words, and what to do."""


@dataclass(slots=True)
class Loaded:
    """A version that serves."""

    name: str
    version: str
    config: ModelConfig
    model: ServedModel
    batcher: Batcher
    statistics: Statistics


@dataclass(slots=True)
class _Entry:
    """What is known of one model: the versions that serve, and why others do not."""

    loaded: dict[str, Loaded] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


class Control:
    """The models of `repository`.

    With `explicit` off (Triton's mode "none") the set of models is what `start` found.
    """

    def __init__(self, repository: str | os.PathLike[str], explicit: bool = False) -> None:
        self._root = Path(repository)
        self._explicit = explicit
        self._models: dict[str, _Entry] = {}
        self._loading = threading.Lock()

    def check(self) -> None:
        """Raise ConfigError when the repository is no directory, or holds no version that could ever serve."""
        if not self._root.is_dir():
            raise ConfigError(f"{self._root}: the model repository must be a directory")
        if not self._explicit and not any(_versions(path) for path in self._folders()):
            inside = _versions(self._root) or (self._root / configs.FILE).is_file()
            hint = f"this is one model; serve {self._root.parent}" if inside else "`lanner export` writes one"
            raise ConfigError(f"no models found in {self._root}: {hint}")

    def start(self) -> None:
        """Load every model; one that fails is reported by `index` and does not stop the others.

        Raises ConfigError as `check` does.
        """
        self.check()
        with self._loading:
            for path in self._folders():
                self._models[path.name] = self._read(path.name)

    def stop(self) -> None:
        """Finish what is queued and end all workers."""
        for loaded in self.loaded():
            loaded.batcher.stop()

    def model(self, name: str, version: str = "") -> Loaded:
        """A version that serves, the newest when none is asked for. Raises RequestError (404)."""
        entry = self._models.get(name)
        if entry is None:
            raise RequestError(f"Request for unknown model: '{name}' is not found", 404)
        if not version and entry.loaded:
            return entry.loaded[max(entry.loaded, key=int)]
        try:
            return entry.loaded[version]
        except KeyError:
            problem = f"version {version} is not found" if version else "has no available versions"
            raise RequestError(f"Request for unknown model: '{name}' {problem}", 404) from None

    def loaded(self) -> list[Loaded]:
        return [loaded for entry in list(self._models.values()) for loaded in list(entry.loaded.values())]

    def versions(self, name: str) -> list[str]:
        """Versions of a model that serve."""
        entry = self._models.get(name)
        return sorted(entry.loaded, key=int) if entry else []

    def index(self, ready_only: bool = False) -> list[dict[str, str]]:
        """All models, each version with its state and, where it does not serve, the reason."""
        found = []
        for name, entry in sorted(self._models.items()):
            found += [_state(name, version, "READY") for version in entry.loaded]
            if not ready_only:
                found += [_state(name, version, "UNAVAILABLE", why) for version, why in entry.reasons.items()]
        return found

    def load(self, name: str) -> None:
        """Load a model or its newer version; what served before serves on until the new one is warm, or if it fails.

        Raises RequestError with the reason, on every call that fails.
        """
        self._require_explicit()
        with self._loading:
            before = self._models.get(name, _Entry())
            if not (self._root / name).is_dir() or Path(name).name != name or name.startswith("."):
                raise RequestError(f"failed to load '{name}', no such model in the repository")
            entry = self._read(name)
            if entry.reasons:
                kept, unused = (before, entry) if before.loaded else (entry, before)
                self._models[name] = _Entry(kept.loaded, entry.reasons)
                _stop(unused)
                raise RequestError(f"failed to load '{name}', {'; '.join(entry.reasons.values())}")
            self._models[name] = entry
        _stop(before)

    def unload(self, name: str) -> None:
        """Stop serving a model once its queued requests are answered."""
        self._require_explicit()
        with self._loading:
            entry = self._models.get(name)
            if entry is None:
                raise RequestError(f"failed to unload '{name}', it is not loaded")
            self._models[name] = _Entry({}, dict.fromkeys(entry.loaded, "unloaded"))
        _stop(entry)

    def _folders(self) -> list[Path]:
        return sorted(path for path in self._root.iterdir() if path.is_dir() and not path.name.startswith("."))

    def _require_explicit(self) -> None:
        if not self._explicit:
            raise RequestError(REFUSED, 503)

    def _read(self, name: str) -> _Entry:
        """Load the versions of a model that its policy asks for."""
        entry = _Entry()
        directory = self._root / name
        try:
            config = configs.load(directory, name)
        except Exception as error:
            return _Entry({}, {"": str(error)})
        wanted, most = _wanted(config, _versions(directory))
        for version in wanted:
            if len(entry.loaded) == most:
                break
            try:
                entry.loaded[version] = self._open(name, version, config)
            except Exception as error:  # a broken version must not stop the others, whatever broke it
                entry.reasons[version] = str(error) or type(error).__name__
        if not wanted:
            entry.reasons[""] = "no finished version"
        return entry

    def _open(self, name: str, version: str, config: ModelConfig) -> Loaded:
        model = ServedModel(self._root / name / version)
        described = ModelConfig()
        described.CopyFrom(config)
        configs.describe_model(described, model.schema, model.outputs)
        policy, statistics = settings.policy(config), Statistics()
        model.warm_up(policy.max_rows)
        batcher = Batcher(name, policy, [model.run] * settings.instances(config), statistics)
        return Loaded(name, version, described, model, batcher, statistics)


def _stop(entry: _Entry) -> None:
    for loaded in entry.loaded.values():
        loaded.batcher.stop()


def _versions(directory: Path) -> list[str]:
    """Finished versions (numbered directories that have a manifest), newest first."""
    finished = [path.parent.name for path in directory.glob(f"*/{manifest.NAME}")]
    return sorted((name for name in finished if VERSION.fullmatch(name)), key=int, reverse=True)


def _wanted(config: ModelConfig, versions: list[str]) -> tuple[list[str], int]:
    """Versions to try in order, and how many of them to load."""
    policy = config.version_policy
    if policy.HasField("specific"):
        wanted = [version for version in versions if int(version) in policy.specific.versions]
        return wanted, len(wanted)
    if policy.HasField("all"):
        return versions, len(versions)
    return versions, max(policy.latest.num_versions, 1)


def _state(name: str, version: str, state: str, reason: str = "") -> dict[str, str]:
    return {"name": name, "version": version, "state": state, "reason": reason}
