"""Certificates hold as they are written, and are refused when any field of them is changed."""

import copy
import json
import os
import re
import subprocess
import sys

import flint
import numpy as np
import pytest
from scipy.linalg import eigvalsh, toeplitz
from tests.verify.makers import MADE, read, text

import spectrope.verify
from spectrope.cli import BAD_INPUT, main
from spectrope.verify import CertificateError, certificates, verify_file
from spectrope.verify.certificates import _below, _polynomial_error, digest

# Fields that no witness supports, and that the digest alone protects: names, and hashes without their files.
UNSUPPORTED = {
    *("subject.target", "subject.version", "inputs.0.name", "inputs.0.sha256", "claim.architecture"),
    *("claim.layers.#.stack", "claim.layers.#.module", "witness.#.comparisons.#.what"),
}
# Premises of a plan that no witness supports, which are told as assumed.
PREMISES = {"claim.length", "claim.tokens", "claim.heads.#.layer", "claim.heads.#.head"}


def leaves(value, path=()):
    """Every field that holds no other, with its path."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def changed(certificate, path, value):
    """A copy with one field changed."""
    copied = copy.deepcopy(certificate)
    place = copied
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copied


def others(value):
    """Other values of a field: of its type, and of another."""
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int | float):
        less = value * 0.5 if isinstance(value, float) else value // 2
        tried = [less, type(value)(0), 2 * value, value * 1024 + 1, "1", None]
    else:
        tried = [f"{value}x", "", 1, None]
    return [one for one in tried if one != value]


def checked(certificate, tmp_path, inputs=None):
    """Verify what a file with that content says."""
    (tmp_path / "cert.json").write_text(json.dumps(certificate))
    return verify_file(tmp_path / "cert.json", inputs)


def sealed(certificate):
    """The same with the digest of its fields, as a forger would write it."""
    certificate["digest"] = digest(certificate)
    return certificate


@pytest.mark.parametrize("name", MADE)
def test_a_certificate_holds_as_it_is_written(name, tmp_path):
    proof = checked(read(name), tmp_path)
    assert proof.kind in name
    assert proof.proved
    assert proof.assumed


@pytest.mark.sampled
@pytest.mark.parametrize("name", MADE)
def test_every_changed_field_is_refused(name, tmp_path):
    certificate = read(name)
    for number, (path, value) in enumerate(leaves(certificate)):
        wrong = changed(certificate, path, others(value)[number % len(others(value))])
        with pytest.raises(CertificateError):
            checked(wrong, tmp_path)


@pytest.mark.parametrize("name", MADE)
def test_every_lost_or_added_field_is_refused_even_if_sealed_anew(name, tmp_path):
    def objects(value, path=()):
        if isinstance(value, dict | list):
            if isinstance(value, dict):
                yield path
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
                yield from objects(inner, (*path, key))

    certificate = read(name)
    for path in objects(certificate):
        for lost in (True, False):
            copied = copy.deepcopy(certificate)
            place = copied
            for key in path:
                place = place[key]
            if lost:
                del place[next(iter(place))]
            else:
                place["extra"] = 1
            with pytest.raises(CertificateError):
                checked(sealed(copied), tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in MADE if name != "audit that differs"])
def test_a_forged_field_is_refused_by_the_mathematics(name, tmp_path):
    """Of the values that a forger might seal, some are refused in each field that a witness supports.

    In a layer that differs one departure is enough, so that other evidence can be changed there.
    """
    certificate = read(name)
    believed = set()
    seen: dict[str, int] = {}
    for path, value in leaves(certificate):
        place = re.sub(r"(?<=\.)\d+", "#", ".".join(map(str, path))).replace("inputs.#", "inputs.0")
        place = place.replace("transform.#", "transform.0")
        seen[place] = seen.get(place, 0) + 1
        if seen[place] > 3 or path == ("digest",):
            continue
        tried = [one for one in others(value) if type(one) is type(value)]
        if place.startswith(("claim.smallest", "claim.largest")):  # Of either sign, unlike counts and sizes.
            tried.append(-value - 1)
        refused = 0
        for one in tried:
            try:
                checked(sealed(changed(certificate, path, one)), tmp_path)
            except CertificateError:
                refused += 1
        if not refused:
            believed.add(place)
    assert believed <= UNSUPPORTED | PREMISES, sorted(believed - UNSUPPORTED)


def test_shape_alone_refuses_values_of_other_types(tmp_path):
    for name in ("attention", "eigenvalues", "audit"):
        certificate = read(name)
        for path, value in list(leaves(certificate))[:60]:
            if path[0] in ("claim", "witness", "inputs", "subject") and not isinstance(value, bool | str):
                with pytest.raises(CertificateError, match="must be"):
                    checked(sealed(changed(certificate, path, [])), tmp_path)


class TestAttention:
    def test_the_largest_error_of_a_polynomial_encloses_a_sampled_one(self):
        proof = read("attention")["witness"][0]
        x = np.linspace(-proof["end"], proof["end"], 20001)
        sampled = np.abs(np.polynomial.polynomial.polyval(x, proof["coefficients"]) * np.exp(-x) - 1).max()
        proven = float(_polynomial_error(tuple(proof["coefficients"]), proof["end"]))
        assert sampled <= proven * (1 + 1e-12)
        assert proven <= proof["polynomial_bound"]
        assert proven == pytest.approx(sampled, rel=1e-4)

    @pytest.mark.parametrize(
        ("field", "factor", "says"),
        [
            (("witness", 0, "polynomial_bound"), 0.99, "below the polynomial's error"),
            (("witness", 0, "epsilon_bound"), 0.999, "epsilon_bound: is too small"),
            (("witness", 0, "rounding_bound"), 0.999, "rounding_bound: is too small"),
            (("claim", "heads", 0, "error_bound"), 0.999, "error_bound: is too small"),
            (("claim", "heads", 0, "error_bound"), 1e3, "is above the tolerance"),
            (("witness", 0, "end"), 0.9, "must hold every logit"),
            (("claim", "heads", 0, "reach"), 2.0, "must hold every logit"),
        ],
    )
    def test_each_bound_is_recomputed(self, field, factor, says, tmp_path):
        certificate = read("attention")
        value = dict(leaves(certificate))[field]
        with pytest.raises(CertificateError, match=says):
            checked(sealed(changed(certificate, field, value * factor)), tmp_path)

    def test_a_polynomial_that_would_take_hours_is_refused(self, tmp_path):
        certificate = read("attention")
        certificate["witness"][0]["coefficients"] += [0.0] * 300
        with pytest.raises(CertificateError, match="coefficients: are too many to be checked"):
            checked(sealed(certificate), tmp_path)

    @pytest.mark.parametrize(("field", "says"), [("energy", "transform.least"), ("features", "one per term")])
    def test_a_transform_of_nothing_is_refused(self, field, says, tmp_path):
        certificate = read("attention by FFT")
        certificate["witness"][0]["transform"][0][field] = 0
        with pytest.raises(CertificateError, match=says):
            checked(sealed(certificate), tmp_path)

    def test_a_head_that_is_named_twice_is_refused(self, tmp_path):
        certificate = read("attention")
        certificate["claim"]["heads"][1]["head"] = certificate["claim"]["heads"][0]["head"]
        with pytest.raises(CertificateError, match="must name each head once"):
            checked(sealed(certificate), tmp_path)


class TestEigenvalues:
    @pytest.mark.parametrize("n", [1, 2, 5, 24])
    def test_no_bound_below_the_largest_eigenvalue_passes(self, n):
        rng = np.random.default_rng(n)
        for _ in range(5):
            entries = rng.normal(size=n).tolist()
            top = float(eigvalsh(toeplitz(entries))[-1])
            with flint.ctx.workprec(256):
                assert _below(entries, top + 1e-9)
                assert not _below(entries, top - 1e-9)

    def test_intervals_hold_the_eigenvalues_of_an_independent_solver(self):
        certificate = read("eigenvalues")
        values = eigvalsh(toeplitz(certificate["witness"]["entries"]))
        claim = certificate["claim"]
        assert claim["smallest"][0] <= values[0] <= claim["smallest"][1]
        assert claim["largest"][0] <= values[-1] <= claim["largest"][1]
        assert claim["largest"][1] - claim["largest"][0] < 1e-8 * abs(values).max()

    @pytest.mark.parametrize("name", ["smallest", "largest"])
    @pytest.mark.parametrize("end", [0, 1])
    def test_an_interval_that_is_moved_is_refused(self, name, end, tmp_path):
        certificate = read("eigenvalues")
        low, high = certificate["claim"][name]
        width = high - low
        certificate["claim"][name] = [low + width, high + width] if end else [low - width, high - width]
        with pytest.raises(CertificateError, match=r"does not reach|could not be shown"):
            checked(sealed(certificate), tmp_path)

    def test_too_many_rows_are_refused(self, tmp_path):
        certificate = read("eigenvalues")
        certificate["claim"]["n"] = 4097
        with pytest.raises(CertificateError, match=r"claim\.n: must be at most 4096"):
            checked(sealed(certificate), tmp_path)


class TestAudit:
    def test_a_verdict_that_the_evidence_contradicts_is_refused(self, tmp_path):
        certificate = read("audit")
        certificate["claim"]["layers"][1]["verdict"] = certificate["claim"]["outcome"] = "differs"
        with pytest.raises(CertificateError, match=r"layers\[1\].verdict: is 'differs'"):
            checked(sealed(certificate), tmp_path)
        certificate = read("audit that differs")
        for layer in certificate["claim"]["layers"]:
            layer["verdict"] = "matches"
        certificate["claim"]["outcome"] = "matches"
        for evidence in certificate["witness"]:
            evidence["comparisons"] = []
        with pytest.raises(CertificateError, match=r"layers\[0\].verdict: is 'matches'"):
            checked(sealed(certificate), tmp_path)

    @pytest.mark.parametrize(
        ("name", "outcome", "holds"),
        [
            ("audit", "incomplete", True),
            ("audit", "differs", True),
            ("audit that differs", "incomplete", False),
            ("audit that differs", "matches", False),
        ],
    )
    def test_an_audit_ends_no_better_than_its_layers(self, name, outcome, holds, tmp_path):
        certificate = read(name)
        certificate["claim"]["outcome"] = outcome
        if holds:
            proof = checked(sealed(certificate), tmp_path)
            assert f"the audit ended with {outcome!r}" in proof.assumed[-1]
            return
        with pytest.raises(CertificateError, match=r"claim\.outcome: is better than 'differs'"):
            checked(sealed(certificate), tmp_path)

    def test_a_match_needs_evidence(self, tmp_path):
        certificate = read("audit that differs")
        for layer in certificate["claim"]["layers"]:
            layer |= {"verdict": "matches", "law": {"kind": "other"}}
        certificate["claim"]["outcome"] = "matches"
        certificate["witness"] = [{"vectors": [], "comparisons": []} for _ in certificate["witness"]]
        with pytest.raises(CertificateError, match="is 'matches', which does not follow from the evidence"):
            checked(sealed(certificate), tmp_path)

    def test_a_verdict_that_is_not_checked_is_not_proved(self, tmp_path):
        certificate = read("audit that differs")
        certificate["claim"]["outcome"] = "incomplete"
        for layer in certificate["claim"]["layers"]:
            layer["verdict"] = "cannot tell"
        proof = checked(sealed(certificate), tmp_path)
        assert "the verdicts of 0 layers (none)" in proof.proved[0]
        assert "of 2 layers, 2 of which depart, no verdict is checked" in proof.assumed[-1]

    def test_a_match_by_compared_values_alone_says_so(self, tmp_path):
        certificate = read("audit that differs")
        one = {"what": "x", "declared": 1, "effective": 1, "tolerance": 0}
        certificate["claim"]["outcome"] = "matches"
        for layer, evidence in zip(certificate["claim"]["layers"], certificate["witness"], strict=True):
            layer |= {"law": {"kind": "other"}, "verdict": "matches"}
            evidence |= {"vectors": [], "comparisons": [one]}
        proof = checked(sealed(certificate), tmp_path)
        assert "2 of these layers are shown by compared values alone" in proof.assumed

    @pytest.mark.parametrize("filled", [1e4, 0.0])
    def test_pairs_are_not_hidden_by_one_large_coordinate(self, filled, tmp_path):
        certificate = read("audit that differs")
        certificate["claim"]["outcome"] = "matches"
        for layer, evidence in zip(certificate["claim"]["layers"], certificate["witness"], strict=True):
            layer["verdict"] = "matches"
            evidence["comparisons"] = []
            for one in evidence["vectors"]:
                rows = one["values"] if filled else [[0.0] * len(row) for row in one["values"]]
                one["values"] = [[*row, 1e4] for row in rows]
        with pytest.raises(CertificateError, match=r"is 'matches', which does not follow|nor most pairs"):
            checked(sealed(certificate), tmp_path)

    def test_noise_cannot_excuse_everything(self, tmp_path):
        certificate = read("audit that differs")
        certificate["claim"]["noise"] = 0.1
        with pytest.raises(CertificateError, match=r"claim\.noise: is above the rounding of bfloat16"):
            checked(sealed(certificate), tmp_path)

    def test_frequencies_must_be_those_of_the_schedule(self, tmp_path):
        for name in ("audit", "audit of Llama 3's scaling"):
            certificate = read(name)
            schedule = certificate["claim"]["layers"][0]["law"]["schedule"]
            schedule["base"] = 10000.0
            with pytest.raises(CertificateError, match="pair 1 is not the schedule's"):
                checked(sealed(certificate), tmp_path)

    def test_the_schedule_is_recognised(self):
        types = [read(name)["claim"]["layers"][0]["law"]["schedule"]["type"] for name in list(MADE)[-3:]]
        assert types == ["geometric", "llama3", "geometric"]


class TestFiles:
    def test_hashes_of_the_inputs_are_compared(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        assert checked(read("audit"), tmp_path, tmp_path).inputs == ["config.json"]
        (tmp_path / "config.json").write_text("{} ")
        with pytest.raises(CertificateError, match=r"inputs\[0\].sha256: is not that of"):
            checked(read("audit"), tmp_path, tmp_path)

    def test_a_name_that_leads_elsewhere_is_refused(self, tmp_path):
        certificate = read("audit")
        certificate["inputs"][0]["name"] = "../config.json"
        with pytest.raises(CertificateError, match="must be no path"):
            checked(sealed(certificate), tmp_path, tmp_path)

    def test_a_folder_without_the_files_is_told_apart_from_other_hashes(self, tmp_path):
        with pytest.raises(CertificateError, match=r"inputs\[0\].name: there is no file .*nowhere"):
            checked(read("audit"), tmp_path, tmp_path / "nowhere")

    def test_nothing_is_compared_where_no_file_is_listed(self, tmp_path):
        certificate = read("audit")
        certificate["inputs"] = []
        assert checked(sealed(certificate), tmp_path).inputs == []
        with pytest.raises(CertificateError, match="inputs: lists no file that could be compared"):
            checked(certificate, tmp_path, tmp_path)

    @pytest.mark.parametrize("name", ["\x1b[2J", "\ud800", "a\x00b"])
    def test_texts_must_be_printable(self, name, tmp_path):
        certificate = read("audit")
        certificate["inputs"][0]["name"] = name
        with pytest.raises(CertificateError, match="must be a text of printable characters"):
            checked(sealed(certificate), tmp_path, tmp_path)

    def test_numbers_beyond_floating_point_are_refused(self, tmp_path):
        certificate = read("eigenvalues")
        certificate["witness"]["entries"][0] = 10**400
        with pytest.raises(CertificateError, match=r"entries\[0\]: must be a finite number"):
            checked(sealed(certificate), tmp_path)

    def test_a_name_that_occurs_twice_is_refused(self, tmp_path):
        content = text("eigenvalues").replace('"claim":', '"claim":{},"claim":', 1)
        (tmp_path / "cert.json").write_text(content)
        with pytest.raises(CertificateError, match="an object with one name twice"):
            verify_file(tmp_path / "cert.json")

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{",
            "[]",
            "NaN",
            "1",
            '{"format": 1}',
            "[" * 100000,
        ],
    )
    def test_what_is_no_certificate_is_refused(self, content, tmp_path):
        (tmp_path / "cert.json").write_text(content)
        with pytest.raises(CertificateError):
            verify_file(tmp_path / "cert.json")

    def test_what_is_too_deep_to_be_written_again_is_refused(self, tmp_path, monkeypatch):
        def too_deep(certificate):
            raise RecursionError("too deep")

        monkeypatch.setattr(certificates, "digest", too_deep)
        with pytest.raises(CertificateError, match="file: is not valid JSON: too deep"):
            checked(read("eigenvalues"), tmp_path)


BLOCKED = (
    "torch",
    "numpy",
    "scipy",
    "polars",
    "pydantic",
    "tyro",
    "rich",
    "safetensors",
    "transformers",
    "jaxtyping",
)
ALONE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Blocker())
from spectrope.verify.__main__ import main
code = main(sys.argv[1:])
known = [name for name in sys.modules if name.startswith("spectrope.")]
assert all(name.startswith("spectrope.verify") for name in known), known
sys.exit(code)
"""


class TestThePrograms:
    def test_it_runs_with_the_standard_library_and_flint_alone(self, tmp_path):
        (tmp_path / "cert.json").write_text(text("audit"))
        program = ALONE.format(blocked=set(BLOCKED))
        ended = subprocess.run(
            [sys.executable, "-c", program, "cert.json"], cwd=tmp_path, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("holds: certificate of kind 'audit'")

    def test_the_command_loads_no_torch(self, tmp_path):
        (tmp_path / "cert.json").write_text(text("audit"))
        program = ALONE.format(blocked={"torch", "numpy", "scipy", "polars"}).partition("from spectrope")[0]
        program += "from spectrope.cli import main; sys.exit(main(['verify', 'cert.json']))"
        ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert "the verdicts of 2 layers (2 matches) follow" in ended.stdout

    def test_without_dependencies_the_program_names_what_runs(self, tmp_path):
        program = ALONE.format(blocked={"tyro"}).partition("from spectrope")[0]
        program = program.replace('ImportError(f"{name} is blocked")', 'ModuleNotFoundError("", name=name)')
        program += "from spectrope.__main__ import main; sys.exit(main())"
        ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == BAD_INPUT
        assert "spectrope: needs tyro, which is not installed; install the package with" in ended.stderr
        assert "`python -m spectrope.verify` runs without it." in ended.stderr

    def test_exit_codes(self, tmp_path, capsys):
        from spectrope.verify.__main__ import main as alone

        (tmp_path / "cert.json").write_text(text("eigenvalues"))
        (tmp_path / "wrong.json").write_text(text("eigenvalues").replace('"n":24', '"n":25'))
        for run, words in ((main, ["verify"]), (alone, [])):
            assert run([*words, str(tmp_path / "cert.json")]) == 0
            assert "the largest eigenvalue of the 24 x 24 matrix lies in" in capsys.readouterr().out
            assert run([*words, str(tmp_path / "wrong.json")]) == 1
            assert "refused: digest: does not match the other fields" in capsys.readouterr().out
            assert run([*words, str(tmp_path / "missing.json")]) == BAD_INPUT
            assert "cannot read" in capsys.readouterr().err
        assert alone([]) == BAD_INPUT
        assert "usage: python -m spectrope.verify" in capsys.readouterr().err
        assert alone(["--help"]) == 0
        assert "--inputs INPUTS" in capsys.readouterr().out

    def test_inputs_are_compared_by_both(self, tmp_path, capsys):
        from spectrope.verify.__main__ import main as alone

        (tmp_path / "cert.json").write_text(text("eigenvalues"))
        for run, words in ((main, ["verify"]), (alone, [])):
            assert run([*words, str(tmp_path / "cert.json"), "--inputs", str(tmp_path)]) == 1
            assert "refused: inputs" in capsys.readouterr().out

    def test_a_folder_is_checked_file_by_file(self, tmp_path, capsys):
        from spectrope.verify.__main__ import main as alone

        for run, words in ((main, ["verify"]), (alone, [])):
            assert run([*words, str(tmp_path)]) == BAD_INPUT
            assert "holds no certificate" in capsys.readouterr().err
        (tmp_path / "a.json").write_text(text("eigenvalues"))
        assert main(["verify", str(tmp_path), "--json"]) == 0
        assert [one["file"] for one in json.loads(capsys.readouterr().out)] == ["a.json"]
        (tmp_path / "b.json").write_text(text("eigenvalues").replace('"n":24', '"n":25'))
        for run, words in ((main, ["verify"]), (alone, [])):
            assert run([*words, str(tmp_path)]) == 1
            told = capsys.readouterr().out
            assert "a.json: holds" in told
            assert "b.json: refused: digest" in told

    def test_what_cannot_be_read_or_printed_hides_nothing(self, tmp_path, capsys):
        from spectrope.verify.__main__ import main as alone

        (tmp_path / "a.json").mkdir()
        (tmp_path / "b\nholds.JSON").write_text(text("eigenvalues").replace('"n":24', '"n":25'))
        (tmp_path / "c.json: holds.json").write_text(text("eigenvalues"))
        for run, words in ((main, ["verify"]), (alone, [])):
            assert run([*words, str(tmp_path)]) == BAD_INPUT
            told = capsys.readouterr()
            assert "a.json: " in told.out + told.err
            assert "'b\\nholds.JSON': refused: digest" in told.out
            assert "'c.json: holds.json': holds: certificate" in told.out
        os.mkfifo(tmp_path / "pipe.json")
        for run, words in ((main, ["verify"]), (alone, [])):
            assert run([*words, str(tmp_path / "pipe.json")]) == 1
            assert "refused: file: is a pipe" in capsys.readouterr().out

    def test_a_name_that_the_terminal_cannot_show_is_escaped(self, tmp_path):
        certificate = read("eigenvalues")
        certificate["subject"]["target"] = "modèle"
        (tmp_path / "cert.json").write_text(json.dumps(sealed(certificate)))
        typed = [sys.executable, "-m", "spectrope.verify", str(tmp_path / "cert.json")]
        ended = subprocess.run(typed, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True)
        assert ended.returncode == 0
        assert b"said to be of mod\\xe8le" in ended.stdout

    def test_json(self, tmp_path, capsys):
        (tmp_path / "cert.json").write_text(text("attention"))
        assert main(["verify", str(tmp_path / "cert.json"), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["holds"] is True
        assert told["kind"] == "attention"

    def test_a_missing_package_is_one_line(self, tmp_path, capsys, monkeypatch):
        from spectrope.verify.__main__ import main as alone

        for name in ("verify_file", "CertificateError"):
            monkeypatch.delattr(spectrope.verify, name, raising=False)
        monkeypatch.setitem(sys.modules, "spectrope.verify.certificates", None)
        assert main(["verify", str(tmp_path / "cert.json")]) == BAD_INPUT
        assert "pip install 'spectrope[verify]'" in capsys.readouterr().err
        assert alone([str(tmp_path / "cert.json")]) == BAD_INPUT
        assert "verify needs python-flint" in capsys.readouterr().err


def test_the_verifier_is_one_short_module():
    with open(certificates.__file__) as file:
        assert len(file.readlines()) <= 420
