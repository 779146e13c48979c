"""Records of a lock: the measured encoding of every layer and head, with tolerances and versions."""

from dataclasses import dataclass, field

from spectrope.checkpoints.adapters.parts import named_part
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.far_encoding import GROWTH_AT, FarEncoding
from spectrope.checkpoints.audit.plane import PlaneTurning
from spectrope.core import Configured, require

SERVING_MODES = "serving modes"
KINDS = ("embeddings", "layers", "decays", "vision", SERVING_MODES)  # Of records that a lock can hold.
FORMAT = 1  # Rises when a file of an older version can no longer be read.


@dataclass(frozen=True, kw_only=True)
class LockedHead(Configured):
    """One query head with one random content at every position.

    Args:
        head: Its number.
        position: What the audit calls it: NoPE, absolute, relative or mixed.
        query: Norm of its query at the first position, which tells other weights.
        key: The same of the key that it reads.
        lags: Lags at which its kernel is kept, in positions.
        kernel: Logits at those lags less that at lag 0, freed of row effects, in logit units.
        tolerance: How far each of them may move, in logit units.
        magnitudes: Magnitudes of some entries of its query and of its key at the first position, by rank and
            relative to their root mean square, which tell weights that moved lightly from rows in another
            order; empty in locks of earlier versions.
    """

    head: int
    position: str
    query: float
    key: float
    lags: tuple[int, ...]
    kernel: tuple[float, ...]
    tolerance: float
    magnitudes: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require(len(self.kernel) == len(self.lags), self, "kernel", f"one per lag, {len(self.lags)} in all")


@dataclass(frozen=True, kw_only=True)
class LockedLayer(Configured):
    """One attention layer.

    Args:
        name: Stack and number.
        module: Dotted name of its attention module.
        applies: What it applies, in words.
        declared: What its configuration declared, in words.
        verdict: Of the audit.
        findings: What the audit found there, if anything: accepted as it is.
        tolerance: Relative departure that is accepted; at 0 the audit's own tolerances decide.
        encoding: What it applies, as measured.
        heads: A record per query head; none for an indexer, which chooses the keys of sparse attention.
        far: What it applies beyond the lock's positions; absent from locks of earlier versions.
    """

    name: str
    module: str
    applies: str
    declared: str
    verdict: str
    findings: tuple[str, ...] = ()
    tolerance: float = 0.0
    encoding: LayerEncoding
    heads: tuple[LockedHead, ...]
    far: FarEncoding | None = None

    def __post_init__(self) -> None:
        if (turning := self.encoding.turning) is not None:
            sizes = {len(turning.frequencies), len(turning.errors), turning.width // 2}
            require(len(sizes) == 1, self, "encoding", f"of {turning.width // 2} frequencies and errors")
            require(turning.width > 0, self, "encoding", "without rotation, or one of at least 2 coordinates")
        growth = (1.0,) * len(GROWTH_AT) if self.far is None else self.far.growth
        rule = f"with {len(GROWTH_AT)} factors above 0 in `growth`"
        positive = len(growth) == len(GROWTH_AT) and min(growth) > 0
        require(positive, self, "far", rule)

    @property
    def described(self) -> str:
        """What it applies in words, with its window or chunk."""
        mask = self.encoding.mask
        measured = "" if mask is None or mask.size is None else str(mask)
        window = (self.far and self.far.window) or measured
        return f"{self.applies}, {window}" if window else self.applies


@dataclass(frozen=True, kw_only=True)
class LockedDecay(Configured):
    """One layer of linear attention with a fixed decay.

    Args:
        name: Its number.
        module: Dotted name of its attention module.
        rates: Rate of each head, in 1 / positions; empty if it could not be measured.
        reach: Largest lag at which a weight was measured.
        verdict: Of the audit.
        findings: What the audit found there, if anything: accepted as it is.
    """

    name: str
    module: str
    rates: tuple[float, ...]
    reach: int
    verdict: str
    findings: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """What it applies, in words."""
        if not self.rates:
            return "linear attention, decay not measured"
        return f"linear attention, decays of {min(self.rates):.3g} to {max(self.rates):.3g} per position"


@dataclass(frozen=True, kw_only=True)
class LockedVision(Configured):
    """One attention layer of a vision tower.

    Args:
        name: "vision" and its number.
        module: Dotted name of its attention module.
        mask: Which patches each query sees, in words.
        turning: Rotation of the first query head, as measured; absent if nothing turns in a known layout.
        verdict: Of the audit, which looks at all heads.
        findings: What the audit found there, if anything: accepted as it is.
    """

    name: str
    module: str
    mask: str
    turning: PlaneTurning | None = None
    verdict: str
    findings: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """What it applies, in words."""
        return "no known rotation" if self.turning is None else self.turning.describe()


@dataclass(frozen=True, kw_only=True)
class LockedEmbeddings(Configured):
    """What the embeddings of a stack add by position.

    Args:
        block: Dotted name of the stack's first block.
        table: Dotted name of the table that is looked up, or "".
        first_row: Row of the first position; absent without a table.
        positions: Positions at which the added vectors are kept.
        norms: Their norms there, less the mean over positions.
        along: Their components along a fixed direction; empty in locks of earlier versions.
        tolerance: Relative departure of a norm that is accepted.
        learned: Whether the table has weights that training moves.
    """

    block: str
    table: str
    first_row: int | None = None
    positions: tuple[int, ...] = ()
    norms: tuple[float, ...] = ()
    along: tuple[float, ...] = ()
    tolerance: float
    learned: bool = False

    def __post_init__(self) -> None:
        sizes = len(self.positions), len(self.along or self.norms)
        require(sizes == (len(self.norms),) * 2, self, "norms", f"one per position, {sizes[0]} in all")


@dataclass(frozen=True, kw_only=True)
class LockedServingMode(Configured):
    """One serving mode, against a plain forward pass.

    Args:
        path: Name of the serving mode; lock files call it `path`.
        verdict: Of the audit.
        findings: Where it differs, if it does: accepted as it is.
    """

    path: str
    verdict: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lock(Configured):
    """What a checkpoint applied when it was locked.

    Args:
        format: Of the file.
        model: Where the checkpoint lies, from the folder of the file where it lies there, or its id.
        architecture: `model_type` of its configuration.
        config_sha256: Digest of its config.json; "" for a model that was not loaded from a folder.
        dtype: In which it ran.
        noise: Relative rounding error of that.
        length: Positions.
        part: Dotted name of the part that is locked by itself, such as "model.encoder"; "" for the whole.
        layers_taken: Layers that were loaded, such as "0:2"; "" for all.
        contents: Random contents.
        versions: Of the libraries that ran it.
        embeddings: A record per stack.
        layers: A record per attention layer and per indexer.
        paths: A record per serving mode; empty where they were left out.
        unread: Modules whose form of attention is not supported.
        decays: A record per layer of linear attention with a fixed decay.
        vision: A record per attention layer of the vision towers that the audit reads.
        outside: Parts of the model that no record covers, in words.
        kinds: Kinds of record that it was made with, among `KINDS`; empty in locks of earlier versions.
    """

    format: int = FORMAT
    model: str
    architecture: str
    config_sha256: str = ""
    dtype: str
    noise: float
    length: int
    part: str = ""
    layers_taken: str = ""
    contents: int = 2
    versions: dict[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    embeddings: tuple[LockedEmbeddings, ...] = ()
    layers: tuple[LockedLayer, ...]
    paths: tuple[LockedServingMode, ...] = ()
    decays: tuple[LockedDecay, ...] = ()
    vision: tuple[LockedVision, ...] = ()
    outside: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """The model, and which part of it is locked."""
        return named_part(self.model, self.part)

    @property
    def every_layer(self) -> tuple[LockedLayer | LockedDecay | LockedVision, ...]:
        """Layers of all kinds."""
        return *self.layers, *self.decays, *self.vision

    @property
    def places(self) -> tuple[str, ...]:
        """Names of everything that is compared."""
        return tuple(place for places in self.by_kind.values() for place in places)

    @property
    def by_kind(self) -> dict[str, tuple[str, ...]]:
        """Names of everything that is compared, by the kind of record."""
        groups = self.layers, self.decays, self.vision
        layers = (tuple(f"layer {one.name}" for one in group) for group in groups)
        embeddings = tuple(f"embeddings of {one.block}" for one in self.embeddings)
        modes = tuple(f"serving mode {one.path}" for one in self.paths)
        return dict(zip(KINDS, (embeddings, *layers, modes), strict=True))
