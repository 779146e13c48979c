"""Many seeds in one program: networks that differ in their seed alone, trained as one."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from spectrope.core.autocast import in_precision
from spectrope.core.errors import ConfigError
from spectrope.core.interrupt import Stop, never
from spectrope.core.noise import StackedNoise
from spectrope.lab.evaluation.score import IGNORED, by_length, counted_labels
from spectrope.lab.training.loop import (
    Trainer,
    Watcher,
    learning_rate,
    make_optimiser,
)
from spectrope.lab.training.sitting import sit
from spectrope.lab.training.state import Row, TrainingState
from spectrope.models.decoder import Decoder
from spectrope.tasks.base import Batch


class Replicas(nn.Module):
    """Decoders of one architecture as one module whose parameters and buffers have a leading axis r.

    Attention is the reference implementation, whose products torch can batch over r for every encoding.

    Args:
        models: The decoders, whose weights are copied.
    """

    def __init__(self, models: Sequence[Decoder]) -> None:
        super().__init__()
        self.stacked = copy.deepcopy(models[0])
        self.stacked.impl = "reference"
        parameters, buffers = stack_module_state(list(models))
        trained = {
            name: nn.Parameter(tensor.detach(), tensor.requires_grad) for name, tensor in parameters.items()
        }
        stacked, first = trained | buffers, dict[Tensor, str]()
        for name, module, own, tensor in list(_places(self.stacked)):
            setattr(module, own, stacked[first.setdefault(tensor, name)])

    def forward(
        self, batches: Sequence[Batch], noise: StackedNoise | None = None
    ) -> Float[Tensor, "r b classes"]:
        """Class logits of one batch for each replica, all of the same size; `noise` switches dropout on."""
        inputs, labels, lengths, positions = _stacked(batches)

        def one(state: dict[str, Tensor], *parts: Tensor | None) -> Tensor:
            # With tied weights, torch leaves slices in the place of a module's tensors that has two names.
            return functional_call(self.stacked, state, (Batch(*parts), noise), tie_weights=False)  # pyright: ignore[reportArgumentType]

        state = {name: tensor for name, _, _, tensor in _places(self.stacked)}
        of_positions = None if positions is None else 0
        return vmap(one, (0, 0, 0, 0, of_positions))(state, inputs, labels, lengths, positions)

    def member(self, replica: int) -> dict[str, Tensor]:
        """Weights of one replica, named as in a decoder of its own."""
        return {name: tensor[replica] for name, tensor in self.stacked.state_dict().items()}


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Name, module, attribute and value of each parameter and buffer; of a module with several names once."""
    for path, module in model.named_modules():
        parameters = module.named_parameters(recurse=False, remove_duplicate=False)
        buffers = module.named_buffers(recurse=False, remove_duplicate=False)
        for attribute, tensor in (*parameters, *buffers):
            yield f"{path}.{attribute}".removeprefix("."), module, attribute, tensor


def _stacked(batches: Sequence[Batch]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The fields of all batches with a leading axis, padded to the longest."""
    width = max(batch.inputs.shape[1] for batch in batches)
    wide = [F.pad(batch.inputs, (0, width - batch.inputs.shape[1])) for batch in batches]
    given = [batch.positions for batch in batches if batch.positions is not None]
    positions = [F.pad(pos, (0, width - pos.shape[1])) for pos in given]
    return (
        torch.stack(wide),
        torch.stack([batch.labels for batch in batches]),
        torch.stack([batch.lengths for batch in batches]),
        torch.stack(positions) if positions else None,
    )


@dataclass(frozen=True)
class ReplicaRow(Row):
    """Scores of one replica."""

    replica: int

    def alone(self) -> Row:
        """The same without the replica's number."""
        return Row(self.epoch, self.step, self.split, self.loss, self.accuracy)


class ReplicaTrainer:
    """Trains the models of experiments that differ in their seed alone, each as if it were alone.

    Data, order, initial weights and learning rates are those of separate training, and so are results up to
    rounding. Dropout draws from the same distribution, but where lengths differ not the same masks.

    Args:
        trainers: One for each seed, not yet begun.

    Raises:
        ConfigError: If they differ in more than their seeds, or share one.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        first = trainers[0]
        for trainer in trainers:
            if replace(trainer.experiment, seed=first.experiment.seed) != first.experiment:
                raise ConfigError(
                    "replicas must differ in their seeds alone; "
                    f"{trainer.experiment.label} differs from {first.experiment.label} in more."
                )
        seeds = [trainer.experiment.seed for trainer in trainers]
        if len(set(seeds)) < len(seeds):
            raise ConfigError(f"replicas need seeds of their own; got {seeds}.")
        self.trainers, self.first = trainers, first
        self.checkpoint = "-".join(map(str, ("replicas", *seeds)))  # In the folder of the first run.
        self.replicas = Replicas([trainer.state.model for trainer in trainers])
        model = self.replicas.stacked
        optimiser = make_optimiser(model, first.config)
        self.state = TrainingState(model, optimiser, row=ReplicaRow, dtype=first.state.dtype)
        self.state.restore(first.run, self.checkpoint)
        for replica, trainer in enumerate(trainers):
            trainer.state.dtype = self.state.dtype
            trainer.state.rows = [row.alone() for row in self.state.rows if row.replica == replica]
        self._keep_time()

    def fit(self, watch: Watcher = lambda progress: None, stop: Stop = never) -> None:
        """Train to the end, then write scores and weights of every run.

        Args:
            watch: Told before every step, and at the end, where training stands.
            stop: Asked after every step whether to stop there.

        Raises:
            Interrupted: If asked to stop, once the checkpoint is written.
        """
        state, steps, run = self.state, self.first.steps, self.first.run
        if not state.rows:
            self._score_epoch(0)
        sit(
            state,
            self._next,
            is_over=lambda: state.step >= steps,
            before=lambda: watch(self.first.progress()),
            save=lambda: state.save(run, self.checkpoint),
            stop=stop,
            place=f"{steps}, saved in {run.path}",
        )
        self._keep_time()
        for trainer in self.trainers:
            trainer.write()
        watch(self.first.progress())

    def _next(self) -> None:
        epoch, within = divmod(self.state.step, self.first.steps_per_epoch)
        self.step([trainer.batch(epoch, within) for trainer in self.trainers])
        if within == self.first.steps_per_epoch - 1:
            self._score_epoch(epoch + 1)

    def step(self, batches: Sequence[Batch]) -> None:
        """One step of the optimiser, which acts on every replica's weights alike."""
        state, config = self.state, self.first.config
        for group in state.optimiser.param_groups:
            group["lr"] = learning_rate(state.step, self.first.steps, config)
        state.optimiser.zero_grad(set_to_none=True)
        self._accumulate(batches)
        if config.clip is not None:
            clip_each(list(state.model.parameters()), config.clip)
        state.optimiser.step()
        state.step += 1
        for trainer in self.trainers:
            trainer.state.step = state.step

    def _accumulate(self, batches: Sequence[Batch]) -> None:
        """Add the gradients of every replica's mean loss, micro-batches by micro-batches."""
        device = self.first.device
        of_one = self.first.state.model
        counted = torch.tensor([(counted_labels(of_one, b.labels) != IGNORED).sum() for b in batches])
        weights = (1 / counted.clamp_min(1)).to(device)
        noises = [trainer.noise() for trainer in self.trainers]
        present = [noise for noise in noises if noise is not None]
        noise = StackedNoise(present) if present else None
        for pieces in self._micro_batches(batches):
            with in_precision(device, self.state.dtype):
                logits = self.replicas(pieces, noise)
            labels = counted_labels(of_one, torch.stack([piece.labels for piece in pieces]))
            losses = F.cross_entropy(
                logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
            )
            (losses.view(labels.shape).sum(1) * weights).sum().backward()

    def _micro_batches(self, batches: Sequence[Batch]) -> Iterator[list[Batch]]:
        trim = self.first.state.model.padding_is_inert
        split = (by_length(batch, self.first.config.micro_batch, trim=trim) for batch in batches)
        for numbered in zip(*split, strict=True):
            yield [piece.to(self.first.device) for _, piece in numbered]

    def _score_epoch(self, epoch: int) -> None:
        for replica, trainer in enumerate(self.trainers):
            trainer.state.model.load_state_dict(self.replicas.member(replica))
            trainer.score_epoch(epoch)
            own = trainer.state.rows[-2:]
            self.state.rows.extend(ReplicaRow(**asdict(row), replica=replica) for row in own)

    def _keep_time(self) -> None:
        """Tell each trainer where all stand; time is divided evenly."""
        for trainer in self.trainers:
            trainer.state.step = self.state.step
            trainer.state.seconds = self.state.seconds / len(self.trainers)


def clip_each(parameters: Sequence[Tensor], largest: float) -> None:
    """Scale each replica's gradient, over all parameters, down to a norm of at most `largest`."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([grad.view(len(grad), -1).norm(dim=1) for grad in grads]).norm(dim=0)
    factor = (largest / (norms + 1e-6)).clamp_max(1)
    for grad in grads:
        grad.mul_(factor.view(-1, *[1] * (grad.ndim - 1)))
