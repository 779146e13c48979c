"""Fields of an experiment, changed by their names."""

import pytest

import spectrope as sp
from spectrope.core.config import config_hash
from spectrope.core.errors import ConfigError
from spectrope.encodings import YaRN
from spectrope.lab.experiments import read_experiment, written


@pytest.fixture(scope="module")
def one():
    return sp.experiment("distance", "rope")


def test_each_field_is_found_at_its_depth(one):
    other = one.with_(learning_rate=1e-3, n_layers=4, n_train=50, max_gap=9)
    assert (other.training.learning_rate, other.model.n_layers) == (1e-3, 4)
    assert (other.n_train, other.task.max_gap) == (50, 9)
    assert one.model.n_layers == 3
    assert read_experiment(written(other)) == other
    assert config_hash(written(other)) != config_hash(written(one))


def test_the_encoding_follows_the_model_and_the_seed():
    random = sp.experiment("distance", "random")
    assert random.with_(seed=5) == sp.experiment("distance", "random", seed=5)
    assert sp.experiment("distance", "alibi").with_(n_heads=4).model.encoding.n_heads == 4


def test_a_path_names_a_field_exactly(one):
    other = one.with_(**{"model.encoding.schedule": "yarn"})
    assert other.model.encoding.schedule == YaRN()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rat": 1}, r"Experiment has no field 'learning_rat'"),
        ({"training.epocs": 1}, r"TrainingConfig has no field 'epocs'; did you mean epochs\?"),
        ({"epochs": 0}, r"TrainingConfig.epochs must be at least 1; got 0"),
        ({"n_layers": "many"}, r"n_layers: Input should be a valid integer"),
        ({"kind": 3}, r"has no field 'kind'"),
        (
            {"condition": "released"},
            r"with_ cannot change condition, on which other fields depend",
        ),
    ],
)
def test_what_cannot_be_changed_gets_one_line(one, changes, message):
    with pytest.raises(ConfigError, match=message) as caught:
        one.with_(**changes)
    assert "\n" not in str(caught.value)


def test_two_fields_of_one_name_at_one_depth_are_told_apart(one):
    with pytest.raises(
        ConfigError, match=r"'vocabulary' could be 'task.vocabulary' or 'model.vocabulary'; give"
    ):
        one.with_(vocabulary=200)
    assert one.with_(**{"model.vocabulary": 200}).model.vocabulary == 200
