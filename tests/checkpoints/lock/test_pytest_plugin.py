"""The plugin for pytest: locks as tests, and the fixture."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.checkpoints.audit.families import ROPES, llama

import spectrope as sp
from spectrope.checkpoints.lock import lock, opening, read_lock, write_lock

pytest_plugins = ["pytester"]


@pytest.fixture
def repository(pytester):
    """A folder with a checkpoint and its lock."""
    model = llama(rope_parameters=ROPES["default"])
    model.save_pretrained(pytester.path / "model")
    held = lock(model, length=32, serving_modes=False, name="model", watch=sp.unwatched)
    write_lock(held, pytester.path / "spectrope.lock")
    return pytester


def test_locks_are_collected_where_that_is_asked_for(repository):
    repository.runpytest_inprocess("--spectrope").assert_outcomes(passed=4)
    assert repository.runpytest_inprocess().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_changed_base_fails_in_every_layer(repository):
    path = repository.path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"]["rope_theta"] = 1e4
    path.write_text(json.dumps(config))
    result = repository.runpytest_inprocess("--spectrope", "-v")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*layer 1 FAILED*", "*SPE101 base: 500000 locked, 10000 now*"])


def test_a_layer_with_other_weights_is_skipped_and_named(repository):
    tuned = llama(rope_parameters=ROPES["default"])
    tuned.model.layers[1].self_attn.k_proj.weight.data *= 2
    tuned.save_pretrained(repository.path / "model")
    result = repository.runpytest_inprocess("--spectrope", "-v", "-rs")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*kernels of heads were not compared, because query or key weights*"])


def test_a_change_in_no_place_of_the_lock_fails_in_a_test_of_its_own(repository, monkeypatch):
    def measured(*args, **options):
        return replace(lock(*args, **options), unread=("extra.attn",))

    monkeypatch.setattr(opening, "lock", measured)
    result = repository.runpytest_inprocess("--spectrope", "-v")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*what the lock does not name FAILED*", "*extra.attn: SPE702 layers: read*"])


@pytest.mark.filterwarnings("default")
def test_a_layer_that_the_lock_lost_is_skipped_and_named(repository):
    path = repository.path / "spectrope.lock"
    held = read_lock(path)
    write_lock(replace(held, layers=held.layers[:1]), path)
    result = repository.runpytest_inprocess("--spectrope", "-v", "-rs")
    result.assert_outcomes(passed=2, skipped=1, warnings=1)
    result.stdout.fnmatch_lines(["*layer 1: the lock does not hold it"])


def test_a_missing_checkpoint_fails_in_one_line(repository):
    (repository.path / "model" / "config.json").unlink()
    result = repository.runpytest_inprocess("--spectrope")
    result.stdout.fnmatch_lines(["spectrope: *model holds no config.json, so it is no checkpoint."])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_fixture_compares_with_the_declaration_and_with_a_lock(repository):
    repository.makepyfile(
        """
        import pytest
        from tests.checkpoints.audit.families import ROPES, llama

        def test_declared(assert_encoding):
            assert_encoding(llama())

        def test_lost(assert_encoding):
            model = llama()
            model.model.rotary_emb.inv_freq *= 0.5
            assert_encoding(model)

        def test_locked(assert_encoding):
            assert_encoding(llama(rope_parameters=ROPES["default"]), lock="spectrope.lock")

        def test_moved(assert_encoding):
            assert_encoding(llama(), lock="spectrope.lock")

        @pytest.mark.filterwarnings("default")
        def test_tuned(assert_encoding):
            model = llama(rope_parameters=ROPES["default"])
            model.model.layers[1].self_attn.k_proj.weight.data *= 2
            assert_encoding(model, lock="spectrope.lock")
        """
    )
    result = repository.runpytest_inprocess("-v")
    result.assert_outcomes(passed=3, failed=2, warnings=1)
    result.stdout.fnmatch_lines(["*layer 1: kernels of heads were not compared*"])
    result.stdout.fnmatch_lines(["*scaling: base 10000 declared, base 10000, linear by 2 effective*"])
    result.stdout.fnmatch_lines(["*base: 500000 locked, 10000 now*"])


def test_the_plugin_imports_nothing_that_is_slow():
    code = (
        "import sys, spectrope.checkpoints.lock.pytest_plugin; "
        "sys.exit(bool({'torch', 'transformers', 'polars'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
