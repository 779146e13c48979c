"""Full-batch steps on residues, against a plain implementation of the same model and optimiser.

The plain one does what code for such experiments commonly does: it computes every position of every layer,
rebuilds its tensors from lists of tuples, and evaluates loss and accuracy on both splits at every step. It is
spared what a careless one would add: one forward pass serves loss and accuracy, and the test set takes no
gradient.
"""

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from benchmarks.harness import Case, run
from torch import Tensor
from torch.testing import assert_close

from spectrope.core.config import to_dict
from spectrope.grokking.config import GrokExperiment, GrokTraining
from spectrope.grokking.models.transformer import ModularTransformer
from spectrope.grokking.tasks.modular import ModularConfig, Pairs
from spectrope.grokking.trainer import GrokTrainer
from spectrope.store import open_run

P = 97  # The paper's modulus.
STEPS, GATED = 2, 3  # Steps per timed run, and compared before anything is timed.
N_HEADS = ModularTransformer.Config().n_heads
Triple = tuple[int, int, int]


def experiment(fraction: float) -> GrokExperiment:
    """The paper's two-layer setting."""
    training = GrokTraining(evaluate_every=100, stop=None)
    return GrokExperiment(task=ModularConfig(p=P, fraction=fraction), training=training)


def trainer(one: GrokExperiment) -> GrokTrainer:
    """Ours, from the start."""
    run = open_run(Path(tempfile.mkdtemp()), to_dict(one), 1)
    return GrokTrainer(one, run, torch.device("cpu"))


@dataclass
class Plain:
    """The plain implementation, on the weights of one of ours.

    Args:
        model: Holds the weights; its own forward pass is not used.
        train: Triples of tokens.
        test: Likewise.
        p: Modulus.
    """

    model: ModularTransformer
    train: list[Triple]
    test: list[Triple]
    p: int

    def __post_init__(self) -> None:
        self.adam = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1.0, betas=(0.9, 0.98))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.adam, lambda step: min((step + 1) / 10, 1))

    def step(self) -> list[float]:
        """One step of the optimiser; losses and accuracies of both splits before it."""
        loss, accuracy = self.evaluate(self.train)
        with torch.no_grad():
            test_loss, test_accuracy = self.evaluate(self.test)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.schedule.step()
        return [loss.item(), accuracy, test_loss.item(), test_accuracy]

    def evaluate(self, triples: list[Triple]) -> tuple[Tensor, float]:
        """Loss and accuracy of some triples, whose tensors are made here."""
        inputs = torch.tensor(triples)
        labels = torch.tensor([(a + b) % self.p for a, b, _ in triples])
        logits = self.logits(inputs)
        accuracy = (logits.argmax(1) == labels).sum().item() / len(labels)
        return F.cross_entropy(logits, labels), accuracy

    def logits(self, inputs: Tensor) -> Tensor:
        """All positions through all layers; the third is read."""
        x = self.model.tokens[inputs] + self.model.encodings[0].get_parameter("table")
        future = torch.ones(3, 3, dtype=torch.bool).triu(1)
        for layer in self.model.layers:
            weight = dict(layer.named_parameters())
            heads = F.linear(x, weight["qkv.weight"]).unflatten(-1, (3, N_HEADS, -1))
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(future, -torch.inf)
            seen = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = x + F.linear(seen, weight["out.weight"])
            hidden = F.linear(x, weight["up.weight"], weight["up.bias"]).relu()
            x = x + F.linear(hidden, weight["down.weight"], weight["down.bias"])
        return self.model.unembed(x[:, 2])


def plain(one: GrokExperiment) -> Plain:
    """The plain implementation at the start of an experiment."""
    model, split = one.model.build(one.task, one.seed), one.task.build().split(one.seed)
    assert isinstance(model, ModularTransformer)
    return Plain(model, triples(split.train, one.task), triples(split.test, one.task), one.task.p)


def triples(pairs: Pairs, task: ModularConfig) -> list[Triple]:
    """Pairs as the tokens of sequences."""
    return [(a, b, task.vocabulary - 1) for a, b in zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)]


def case(fraction: float) -> Case:
    """Some steps of both, as training takes them."""
    one = experiment(fraction)
    ours, theirs = trainer(one), plain(one)

    def gate() -> None:
        ours_first, theirs_first = trainer(one), plain(one)
        for _ in range(GATED):
            model, train = ours_first.state.model, ours_first.train
            loss = ours_first.loss(model(train.a, train.b)).item()
            assert_close(loss, theirs_first.step()[0], rtol=1e-5, atol=1e-6)
            ours_first.step()

    def fast() -> None:
        for _ in range(STEPS):
            ours.step()

    def reference() -> None:
        for _ in range(STEPS):
            theirs.step()

    label = f"{STEPS} steps, p {P}, 2 layers, fraction {fraction}"
    return Case(label, gate, fast, reference, ">= 4x")


def cases() -> Iterator[Case]:
    """Both training fractions of the paper. Ours leaves out its evaluations, one in a hundred steps."""
    yield case(0.3)
    yield case(0.5)


def main() -> None:
    """Time both fractions, and store the times."""
    run("grokking", cases(), threads=2, repeats=3)


if __name__ == "__main__":
    main()
