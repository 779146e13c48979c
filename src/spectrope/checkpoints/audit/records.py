"""Records of an audit, which serialise to JSON."""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.far_encoding import FarEncoding
from spectrope.checkpoints.audit.finding import Finding, finding_of
from spectrope.checkpoints.audit.impact import (
    IGNORED,
    IN_INDEXER,
    IN_LINEAR_ATTENTION,
    IN_VISION,
    NOT_OF_A_LAYER,
    UNMEASURED,
    Impact,
)
from spectrope.checkpoints.audit.plane import PlaneTurning
from spectrope.checkpoints.audit.reach import Reach
from spectrope.checkpoints.audit.text import COLUMNS, as_html, as_text, layer_rows
from spectrope.core import UnsupportedError

if TYPE_CHECKING:
    import polars

    from spectrope.checkpoints.audit.far import Far

LayerVerdict = Literal["matches", "differs", "undeclared", "cannot tell", "declaration ambiguous"]
AuditOutcome = Literal["matches", "differs", "incomplete"]
CHECKPOINT = "checkpoint"  # Where findings about what it holds are.
Position = Literal["NoPE", "absolute", "relative", "mixed"]


@dataclass(frozen=True)
class HeadRecord:
    """One head's positional kernel.

    Args:
        head: Its number.
        position: NoPE if nothing varies with position in either probe, absolute if only the input does,
            relative if only the kernel does and is Toeplitz up to row effects, mixed otherwise.
        toeplitz_distance: Share of the kernel's energy beyond row effects that no Toeplitz matrix explains;
            None where nothing varies or the mask hides part of the kernel.
        slope: Logit units lost per position of distance, for a linear bias.
        lags: Lags at which the kernel is sampled, in positions.
        kernel: Logits at those lags with one content everywhere, freed of row effects, in logit units.
    """

    head: int
    position: Position
    toeplitz_distance: float | None
    slope: float | None
    lags: tuple[int, ...]
    kernel: tuple[float, ...]


@dataclass(frozen=True)
class LayerRecord:
    """What one layer applies, what it is declared to apply, and the verdict.

    Args:
        module: Dotted name of the attention module.
        stack: "encoder", "decoder", or "" where there is one stack.
        layer: Number in the stack.
        position: As of the heads; mixed where they disagree.
        effective: Measured.
        declared: Read from the configuration.
        verdict: Whether they agree.
        findings: Where they differ.
        reason: Why a verdict is "undeclared", "cannot tell" or "declaration ambiguous", else "".
        scale: Factor on dot products.
        heads: A record per query head.
        reach: How far the pairs turn, for a rotation of a model that states its length.
        far: What it is declared to apply beyond the audited length; None if that was left out.
    """

    module: str
    stack: str
    layer: int
    position: Position
    effective: LayerEncoding
    declared: LayerEncoding
    verdict: LayerVerdict
    findings: tuple[Discrepancy, ...]
    reason: str
    scale: float
    heads: tuple[HeadRecord, ...]
    reach: Reach | None
    far: FarEncoding | None = None

    @property
    def name(self) -> str:
        """Stack and number."""
        return f"{self.stack} {self.layer}".strip()


@dataclass(frozen=True)
class DecayRecord:
    """How fast the heads of one layer of linear attention forget, and how fast the architecture declares it.

    Args:
        module: Dotted name of the attention module.
        layer: Its number.
        effective: Rate of each head, in 1 / positions: the weight of a key falls as exp(-rate × lag).
        declared: The same by the architecture's formula.
        verdict: Whether they agree.
        findings: Where they differ.
        reason: Why the verdict is "cannot tell", else "".
        reach: Largest lag at which a weight was measured.
        cached: Whether the weights behind a cache were compared, too.
    """

    module: str
    layer: int
    effective: tuple[float, ...]
    declared: tuple[float, ...]
    verdict: LayerVerdict
    findings: tuple[Discrepancy, ...]
    reason: str
    reach: int
    cached: bool

    @property
    def name(self) -> str:
        """The layer's number."""
        return str(self.layer)


@dataclass(frozen=True)
class VisionRecord:
    """What one layer of a vision tower rotates queries and keys of patches by, and the declared rotation.

    Args:
        module: Dotted name of the attention module.
        tower: Dotted name of the tower, "" for a model that is one.
        layer: Its number in the tower.
        grid: Rows and columns of the picture that was used.
        position: relative, or mixed if the tower's embeddings differ between patches of one colour, too.
        mask: Which patches each query sees, in words.
        effective: Measured on the first query head; None if nothing turns in a known layout.
        declared: By configuration and architecture, for that picture.
        verdict: Whether they agree.
        findings: Where they differ.
        exercised: Whether the attention function was run on random inputs.
        ordered: Whether each token was seen to be the patch of its place.
    """

    module: str
    tower: str
    layer: int
    grid: tuple[int, int]
    position: Position
    mask: str
    effective: PlaneTurning | None
    declared: PlaneTurning
    verdict: LayerVerdict
    findings: tuple[Discrepancy, ...]
    exercised: bool
    ordered: bool

    @property
    def name(self) -> str:
        """The tower's kind, and the layer's number."""
        return f"vision {self.layer}"


@dataclass(frozen=True)
class AbsoluteRecord:
    """What the embeddings of a stack add by position.

    Args:
        block: Dotted name of the stack's first block.
        variation: Share of its input's energy that varies over positions with one token everywhere.
        table: Dotted name of the table that is looked up, or "".
        first_row: Row of the first position; None without a table, -1 where no row is equal.
        declared_row: Row at which the configuration's architecture starts; None where it declares no table.
        verdict: Whether they agree.
        findings: Where they differ.
        length: Positions that were looked at, all of them.
        term: What varies over positions, with shape (t, c), if anything; no part of the JSON record.
    """

    block: str
    variation: float
    table: str
    first_row: int | None
    declared_row: int | None
    verdict: LayerVerdict
    findings: tuple[Discrepancy, ...]
    length: int = 0
    term: Float[Tensor, "t c"] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ServingRecord:
    """Whether one serving mode gives the kernels of a plain forward pass.

    Args:
        mode: Name of the serving mode.
        verdict: "matches" or "differs", or "cannot tell" where the model refuses it.
        findings: First layer that differs and by how much.
        reason: What the model refuses it with, else "".
    """

    mode: str
    verdict: LayerVerdict
    findings: tuple[Discrepancy, ...]
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.mode} ({self.reason})" if self.reason else self.mode


@dataclass(frozen=True)
class IgnoredRecord:
    """Something of a checkpoint that concerns attention and that the model's code ignores.

    Args:
        name: Of a field of its configuration, or of a kind of weight.
        verdict: "differs".
        findings: What it declares.
    """

    name: str
    verdict: LayerVerdict
    findings: tuple[Discrepancy, ...]


@dataclass(frozen=True, repr=False)
class Audit:
    """The audit of a model.

    Args:
        model: Class, or name under which it was loaded.
        architecture: `model_type` of the configuration.
        dtype: In which it ran.
        noise: Relative rounding error of that.
        length: Positions.
        absolutes: A record per stack of layers.
        layers: A record per layer of softmax attention.
        decays: A record per layer of linear attention with a fixed decay.
        vision: A record per attention layer of the vision towers whose rotation by row and column is known.
        indexers: A record per indexer, which chooses the keys of a layer of sparse attention: the rotation of
            its queries and keys.
        unseen: Parts of a model of texts that take pictures or sounds and were not audited, "" for none.
        serving_modes: A record per serving mode that was looked at.
        served_tokens: Tokens that those took, 0 if there are none.
        omitted: Names of the layers that were not loaded.
        attention: Names of the library's implementations of attention with which the model ran; none for a
            module of your own.
        transformers: Version of that library, "" for a module of your own.
        unserved: Serving modes that were not looked at though nobody left them out, and why.
        unexercised: Inputs of the architecture that change its kernels and were not given, in words.
        further: Those that further passes had, in words.
        ignored: A record per field of the configuration and kind of weight that the model's code ignores.
        notes: Conversions of the model that would change its kernels, in words.
        unread: Dotted names of modules whose form of attention is not supported.
        without: Dotted names of blocks that are not audited because they have no attention that is read.
        untried: Dotted names of modules whose attention function was not tested on random inputs.
        impacts: Impact of each finding of each record of embeddings, and then of each layer.
        far: What was tested beyond the audited length; None if nothing was.
    """

    model: str
    architecture: str
    dtype: str
    noise: float
    length: int
    absolutes: tuple[AbsoluteRecord, ...]
    layers: tuple[LayerRecord, ...]
    serving_modes: tuple[ServingRecord, ...] = ()
    unread: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    impacts: tuple[tuple[Impact, ...], ...] = ()
    far: "Far | None" = None
    unserved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unexercised: tuple[str, ...] = ()
    decays: tuple[DecayRecord, ...] = ()
    vision: tuple[VisionRecord, ...] = ()
    unseen: str = ""
    indexers: tuple[LayerRecord, ...] = ()
    further: tuple[str, ...] = ()
    ignored: tuple[IgnoredRecord, ...] = ()
    served_tokens: int = 0
    omitted: tuple[str, ...] = ()
    attention: tuple[str, ...] = ()
    transformers: str = ""

    @property
    def outcome(self) -> AuditOutcome:
        """Whether everything matches, something differs, or nothing differs but something could not be
        determined."""
        verdicts = {record.verdict for record in self._judged}
        if "differs" in verdicts:
            return "differs"
        return "incomplete" if verdicts - {"matches"} or self.unread else "matches"

    @property
    def _judged(
        self,
    ) -> tuple[
        "IgnoredRecord | AbsoluteRecord | LayerRecord | DecayRecord | VisionRecord | ServingRecord", ...
    ]:
        """Everything that has a verdict."""
        return (
            *self.ignored,
            *self.absolutes,
            *self.layers,
            *self.indexers,
            *self.decays,
            *self.vision,
            *self.serving_modes,
        )

    def require_layers(self, purpose: str) -> None:
        """Refuse the audit of a vision tower where only layers over tokens are compared.

        Args:
            purpose: What they are needed for, as the beginning of a sentence.

        Raises:
            UnsupportedError: If there are none.
        """
        if not self.layers:
            raise UnsupportedError(
                f"{purpose} compares attention over tokens, and {self.model} has none; `spectrope audit` "
                "and `spectrope lock` read vision towers."
            )

    @property
    def ok(self) -> bool:
        """Whether every layer, every embedding and every serving mode matches."""
        return self.outcome == "matches"

    def to_frame(self) -> "polars.DataFrame":
        """A row per layer: its place, what it applies and is declared to apply, and the verdict."""
        import polars

        return polars.DataFrame(layer_rows(self), schema=dict.fromkeys(COLUMNS, polars.String))

    def __str__(self) -> str:
        """The table of verdicts, then why each one is no match."""
        return as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return as_html(self)

    @property
    def findings(self) -> list[tuple[str, Discrepancy]]:
        """Every finding with the layer, embedding or serving mode that it belongs to, or "checkpoint"."""
        named = [
            *((CHECKPOINT, record) for record in self.ignored),
            *((f"embeddings of {record.block}", record) for record in self.absolutes),
            *((f"layer {record.name}", record) for record in self.layers),
            *((f"layer {record.name}", record) for record in (*self.indexers, *self.decays, *self.vision)),
            *((f"serving mode {record.mode}", record) for record in self.serving_modes),
        ]
        return [(name, finding) for name, record in named for finding in record.findings]

    @property
    def records(self) -> tuple[Finding, ...]:
        """Every finding as a flat record with its code and its impact, the largest impact first."""
        measured: dict[str, int | None] = {f"embeddings of {record.block}": None for record in self.absolutes}
        measured |= {f"layer {record.name}": record.layer for record in self.layers}
        others = (
            (self.indexers, IN_INDEXER),
            (self.decays, IN_LINEAR_ATTENTION),
            (self.vision, IN_VISION),
        )
        unmeasured: dict[str, tuple[int | None, Impact]] = {CHECKPOINT: (None, IGNORED)}
        unmeasured |= {
            f"layer {record.name}": (record.layer, impact) for some, impact in others for record in some
        }
        known = iter([impact for some in self.impacts for impact in some])
        found: list[Finding] = []
        for where, finding in self.findings:
            layer, impact = unmeasured.get(where, (measured.get(where), NOT_OF_A_LAYER))
            impact = next(known, UNMEASURED) if where in measured else impact
            found.append(finding_of(where, layer, finding, impact))
        return tuple(sorted(found, key=lambda one: one.impact.size, reverse=True))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the summary first."""
        findings = [dataclasses.asdict(record) for record in self.records]
        summary = {"ok": self.ok, "outcome": self.outcome, "findings": findings}
        values = {**summary, **dataclasses.asdict(self)}
        del values["impacts"]
        of_tokens = [*values["layers"], *values["indexers"]]
        for record, one in zip((*self.layers, *self.indexers), of_tokens, strict=True):
            if record.effective.turning is not None:
                fit = record.effective.turning.fit(record.declared.turning)
                one["effective"]["turning"] |= dataclasses.asdict(fit)
        if values["far"] is not None:
            del values["far"]["findings"]
        for absolute in values["absolutes"]:
            del absolute["term"]
        return values
