import pytest

from spectrope.core.errors import ConfigError
from spectrope.grokking.config import GrokExperiment
from spectrope.lab.runs import experiment_of, run_for


def test_a_run_of_another_laboratory_has_no_decoder(tmp_path):
    run = run_for(GrokExperiment(), tmp_path)
    with pytest.raises(ConfigError, match=rf"run {run.id} is of laboratory 'grokking' and has no decoder"):
        experiment_of(run)
