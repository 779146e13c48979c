"""Certificate verifier in interval arithmetic; it imports the standard library and python-flint alone."""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from flint import acb, acb_poly, arb, arb_poly, ctx

FORMAT = "spectrope certificate 1"
BITS, MOST_BITS, MOST_TERMS = 256, 8192, 32  # Of precision, and of a polynomial.
LARGEST_FILE, LARGEST = 2**28, 2.0**1023  # Bytes of a certificate, and modulus of a number in binary64.
Told = tuple[list[str], list[str]]  # What is proved, and what it rests on.


class CertificateError(Exception):
    """A certificate does not hold; the one-line message names the field and the reason."""


@dataclass(frozen=True)
class Proof:
    """What a certificate that holds proves."""

    kind: str
    target: str  # Of what it is one, in words that are not checked.
    proved: list[str]  # Statements that were recomputed.
    assumed: list[str]  # What they rest on that the certificate cannot show.
    inputs: list[str]  # Names of the files whose hashes were compared.

    def __str__(self) -> str:
        lines = [f"holds: certificate of kind {self.kind!r}, said to be of {self.target}"]
        lines += [f"proved: {line}" for line in self.proved] + [f"assumed: {line}" for line in self.assumed]
        return "\n".join([*lines, f"inputs compared: {', '.join(self.inputs) or 'none'}"])


def verify_file(path: str | Path, inputs: str | Path | None = None) -> Proof:
    """Check a certificate, and the hashes of its inputs where their folder is given.

    Raises:
        CertificateError: If it does not hold, or is no certificate.
        OSError: If a file cannot be read.
    """
    _require(not Path(path).is_fifo(), "file", "is a pipe, which would be waited for")
    with Path(path).open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    _require(len(content) <= LARGEST_FILE, "file", f"must be at most {LARGEST_FILE} bytes")
    try:
        certificate = json.loads(content, object_pairs_hook=_object)
        sealed = digest(certificate) if isinstance(certificate, dict) else ""
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"file: is not valid JSON: {str(error).splitlines()[0]}") from None
    head = {"format": (FORMAT,), "kind": tuple(KINDS), "subject": _fields("text", "target version")}
    head |= {"inputs": [_fields("text", "name sha256"), 0], "digest": "text"}
    _check(certificate, head | _fields("any", "claim witness"), "certificate")
    _require(certificate["digest"] == sealed, "digest", "does not match the other fields")
    for number, one in enumerate(certificate["inputs"]):
        _require(not set(one["name"]) & set("/\\"), f"inputs[{number}].name", "must be no path")
        place = None if inputs is None else Path(inputs) / one["name"]
        _require(place is None or place.is_file(), f"inputs[{number}].name", f"there is no file {place}")
        same = place is None or sha256(place) == one["sha256"]
        _require(same, f"inputs[{number}].sha256", f"is not that of {place}")
    _require(inputs is None or certificate["inputs"], "inputs", "lists no file that could be compared")
    shapes, check = KINDS[certificate["kind"]]
    for name in ("claim", "witness"):
        _check(certificate[name], shapes[name], name)
    with ctx.workprec(BITS):
        proved, assumed = check(certificate["claim"], certificate["witness"])
    compared = [one["name"] for one in certificate["inputs"] if inputs]
    return Proof(certificate["kind"], certificate["subject"]["target"], proved, assumed, compared)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object none of whose names occurs twice, since readers differ in which one they take."""
    _require(len(dict(pairs)) == len(pairs), "file", "has an object with one name twice")
    return dict(pairs)


def digest(certificate: dict[str, Any]) -> str:
    """SHA-256 of a certificate without its digest, as JSON with sorted keys and no spaces."""
    rest = {name: value for name, value in certificate.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sha256(path: Path) -> str:
    """Hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Shapes of fields: an object of shapes, [shape, least number], (allowed values), or the name of a rule.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "any": (lambda x: True, ""),
    "text": (lambda x: isinstance(x, str) and x.isprintable(), "a text of printable characters"),
    "count": (lambda x: type(x) is int and 0 <= x < 2**40, "a whole number, not negative"),
    "number": (lambda x: type(x) in (int, float) and abs(x) <= LARGEST, "a finite number"),
    "size": (lambda x: type(x) in (int, float) and 0 <= x <= LARGEST, "a finite number, not negative"),
    "plain": (lambda x: isinstance(x, str | bool) or RULES["number"][0](x), "a text, a flag or a number"),
}


def _require(holds: Any, field: str, why: str) -> None:
    if not holds:
        raise CertificateError(f"{field}: {why}")


def _check(value: Any, shape: Any, where: str) -> None:
    """Refuse a value of another shape."""
    if isinstance(shape, dict):
        same = isinstance(value, dict) and set(value) == set(shape)
        _require(same, where, f"must have {', '.join(shape)} alone")
        for name, inner in shape.items():
            _check(value[name], inner, f"{where}.{name}")
    elif isinstance(shape, list):
        inner, least = shape
        _require(isinstance(value, list) and len(value) >= least, where, f"must list at least {least}")
        for number, one in enumerate(value):
            _check(one, inner, f"{where}[{number}]")
    elif isinstance(shape, tuple):
        allowed = any(type(value) is type(one) and value == one for one in shape)
        _require(allowed, where, f"must be one of {', '.join(map(str, shape))}")
    else:
        holds, told = RULES[shape]
        _require(holds(value), where, f"must be {told}")


def _fields(shape: Any, names: str) -> dict[str, Any]:
    """Fields of one shape."""
    return dict.fromkeys(names.split(), shape)


# Attention in linear time: for every head, a polynomial and what its error adds up to.
UNITS = (2.0**-24, 2.0**-53)  # Of binary32 and binary64.
HEAD = _fields("count", "layer head dim") | {"kernel": ("polynomial", "fft", "relative")}
HEAD |= _fields("size", "tolerance reach norm remainder deviation error_bound")
TRANSFORM = _fields("count", "features points") | _fields("size", "energy least")
STEPS = {"coefficients": ["number", 2], "steps": "count", "transform": [TRANSFORM, 0]}
STEPS |= _fields("size", "end polynomial_bound epsilon_bound rounding_bound output_unit")
STEPS |= _fields(UNITS, "unit input_unit")
ATTENTION = {"claim": {"length": "count", "tokens": "count", "heads": [HEAD, 1]}, "witness": [STEPS, 1]}
FFT_STEP = 16  # Units per doubling of a transform's length: Higham (2002), Thm. 24.2, with a wide margin.


def check_attention(claim: Any, witness: Any) -> Told:
    r"""Every head: :math:`|o - \mathrm{exact}| \le e \max|v|` whenever its logits keep within the ranges."""
    heads, length = claim["heads"], claim["length"]
    _require(len(witness) == len(heads), "witness", "must have an entry per head")
    places = {(head["layer"], head["head"]) for head in heads}
    _require(len(places) == len(heads), "claim.heads", "must name each head once")
    for number, (head, proof) in enumerate(zip(heads, witness, strict=True)):
        _check_head(head, proof, f"claim.heads[{number}]", f"witness[{number}]", length)
    worst, reach = (max(head[name] for head in heads) for name in ("error_bound", "reach"))
    within = f"attention of {len(heads)} heads is within {worst!r} max|v| of exact attention"
    return [f"{within}, for all logits within each head's range, {reach!r} at most"], [
        f"logits keep within the ranges, which were measured on sequences of {claim['tokens']} tokens",
        f"at {length} tokens roundings are no more than stated; their units, norms, coordinates left out, "
        "weights of lags and errors of transforms are as stated",
    ]


def _check_head(head: Any, proof: Any, here: str, there: str, length: int) -> None:
    names = ("end", "polynomial_bound", "epsilon_bound", "rounding_bound")
    end, bound, epsilon, stated = (arb(proof[name]) for name in names)
    once = len(proof["transform"]) == (head["kernel"] != "polynomial")
    _require(once, f"{there}.transform", "must go with kernels fft and relative, once")
    _require(len(proof["coefficients"]) <= MOST_TERMS, f"{there}.coefficients", "are too many to be checked")
    norm, error = arb(head["norm"]), arb(head["error_bound"])
    _require(head["dim"] > 0, f"{here}.dim", "must be at least 1")
    moved = head["remainder"] + 4 * (head["dim"] + 4) * arb(proof["input_unit"]) * norm + head["deviation"]
    _require(head["reach"] + moved <= end, f"{there}.end", "must hold every logit, moved by what is left out")
    worst = _polynomial_error(tuple(proof["coefficients"]), proof["end"])
    _require(worst <= bound, f"{there}.polynomial_bound", "is below the polynomial's error on the interval")
    _require((1 + bound) * moved.exp() - 1 <= epsilon, f"{there}.epsilon_bound", "is too small")
    _require(epsilon < 1, f"{there}.epsilon_bound", "must be below 1")
    lost = _rounding(proof, norm.max(end), end, bound, there, length)
    _require(lost <= stated, f"{there}.rounding_bound", "is too small")
    mean = 2 * epsilon / (1 + (1 - epsilon**2).sqrt())
    _require(mean + stated <= error, f"{here}.error_bound", "is too small")
    _require(error <= arb(head["tolerance"]), f"{here}.error_bound", "is above the tolerance")


@lru_cache(maxsize=256)
def _polynomial_error(coefficients: tuple[float, ...], end: float) -> arb:
    r"""The largest :math:`|P(x)e^{-x}-1|` on [-end, end]: at an end, or where P' - P is zero."""
    real, complex_ = arb_poly(list(coefficients)), acb_poly(list(coefficients))
    try:
        roots = (complex_.derivative() - complex_).complex_roots()
    except (ValueError, ZeroDivisionError):
        raise CertificateError("witness: zeros of P' - P could not be isolated") from None
    points = [root.real for root in roots if root.imag.contains(0) and not abs(root.real) > end]
    return max(((real(x) * (-x).exp() - 1).abs_upper() for x in [*points, arb(-end), arb(end)]), key=float)


def _rounding(proof: Any, largest: arb, end: arb, bound: arb, there: str, length: int) -> arb:
    """What floating point adds to an output, in units of max|v|."""
    steps, unit = proof["steps"], arb(proof["unit"])
    _require(steps >= 4 * len(proof["coefficients"]) + 4, f"{there}.steps", "is below what a product takes")
    moduli = sum((abs(arb(a)) * largest**m for m, a in enumerate(proof["coefficients"])), arb(0))
    least = (1 - bound) * (-end).exp()
    lost = steps * unit / (1 - steps * unit) * moduli / least
    _require((steps * unit < 0.5) and (lost < 0.5), f"{there}.steps", "lose more than a half")
    total = 2 * lost / (1 - lost) + 4 * unit + proof["output_unit"]
    if not proof["transform"]:
        return total
    features, points, energy, nearest = (proof["transform"][0][name] for name in TRANSFORM)
    _require(points >= length, f"{there}.transform.points", "must be at least the length")
    _require(
        0 < nearest <= min(1, energy), f"{there}.transform.least", "must be above 0, at most 1 and energy"
    )
    _require(features >= len(proof["coefficients"]), f"{there}.transform.features", "must be one per term")
    each = arb(2) ** -53 * (FFT_STEP * arb(4 * points).log() / arb(2).log() + features)
    share = arb("3.3") * arb(2).sqrt() * each * points * energy * moduli / (least * nearest)
    _require(share < 0.5, f"{there}.transform", "loses more than a half")
    return total + 2 * share / (1 - share)


# Extreme eigenvalues of a real symmetric Toeplitz matrix.
INTERVALS = {"n": "count", "entries_sha256": "text"} | _fields(["number", 2], "smallest largest")
EIGENVALUES = {"claim": INTERVALS, "witness": _fields(["number", 1], "entries smallest largest")}
MOST_ROWS = 4096


def check_eigenvalues(claim: Any, witness: Any) -> Told:
    """Check that each extreme eigenvalue lies in its interval: a Rayleigh quotient bounds it from inside."""
    n, entries = claim["n"], [float(x) for x in witness["entries"]]
    _require(n <= MOST_ROWS, "claim.n", f"must be at most {MOST_ROWS}")
    _require(len(entries) == n, "witness.entries", f"must hold {n} numbers, the entries at lags 0 to n - 1")
    hashed = hashlib.sha256(struct.pack(f"<{n}d", *entries)).hexdigest()
    _require(claim["entries_sha256"] == hashed, "claim.entries_sha256", "is not that of the entries")
    proved = []
    for name, sign in (("smallest", -1.0), ("largest", 1.0)):
        ends, vector, signed = claim[name], witness[name], [sign * t for t in entries]
        _require(len(ends) == 2 and ends[0] <= ends[1], f"claim.{name}", "must be an interval [low, high]")
        inner, outer = (ends[0], ends[1]) if sign > 0 else (-ends[1], -ends[0])
        _require(len(vector) == n and any(vector), f"witness.{name}", f"must hold {n} numbers, not all zero")
        _require(_quotient(signed, vector) >= inner, f"witness.{name}", f"does not reach claim.{name}")
        _require(_below(signed, outer), f"claim.{name}", "could not be shown to hold the eigenvalue")
        proved.append(f"the {name} eigenvalue of the {n} x {n} matrix lies in [{ends[0]!r}, {ends[1]!r}]")
    return proved, ["the entries are those of the encoding that the subject names"]


def _quotient(entries: list[float], vector: list[float]) -> arb:
    """The Rayleigh quotient, by the autocorrelation of the vector."""
    n = len(vector)
    products = (arb_poly(vector) * arb_poly(vector[::-1])).coeffs()
    correlation = [*products, *[arb(0)] * (2 * n - 1 - len(products))][n - 1 :]
    weighted = [t * r for t, r in zip(entries, correlation, strict=True)]
    return (2 * sum(weighted[1:], arb(0)) + weighted[0]) / correlation[0]


def _below(entries: list[float], bound: float) -> bool:
    """Whether no eigenvalue passes a bound, with as many bits as it takes."""
    decided, bits = None, 128
    while decided is None and bits <= MOST_BITS:
        with ctx.workprec(bits):
            decided = _is_definite([arb(bound) - entries[0], *(arb(-t) for t in entries[1:])])
        bits *= 4
    return bool(decided)


def _is_definite(entries: list[arb]) -> bool | None:
    """Whether a symmetric Toeplitz matrix is positive definite: if Schur's reflections are below 1."""
    if not entries[0] > 0:
        return False if entries[0] <= 0 else None
    first, second = arb_poly(entries), arb_poly(entries[1:])
    for left in range(len(entries) - 1, 0, -1):
        reflection = second[0] / first[0]
        if not abs(reflection) < 1:
            return False if abs(reflection) >= 1 else None
        first, second = first.truncate(left), second.truncate(left)
        first, second = first - reflection * second, (second - reflection * first).right_shift(1)
    return True


# Verdicts of an audit.
ANGLE, NOISE, MOST_NOISE = 2e-3, 40, 2.0**-7  # A pair may be off by ANGLE, and NOISE units of rounding.
OUTCOMES = ("matches", "incomplete", "differs")  # The worse the later.
CHECKED = ("matches", "differs")
VERDICTS = (*CHECKED, "undeclared", "cannot tell", "declaration ambiguous")
PAIRS = {"kind": "text", "schedule": "any", "pairing": ("adjacent", "halves"), "sense": (1, -1)}
PAIRS |= _fields("count", "start width") | {"frequencies": ["size", 1]}
LAWS: dict[str, dict[str, Any]] = {"rotary": PAIRS, "none": {"kind": "text"}, "other": {"kind": "text"}}
LAYER = {"layer": "count", "verdict": VERDICTS, "law": "any"} | _fields("text", "stack module")
VECTORS: dict[str, Any] = {"side": ("queries", "keys"), "head": "count", "positions": ["count", 3]}
VECTORS |= {"values": [["number", 1], 3]}
COMPARED = {"what": "text", "tolerance": "size"} | _fields("plain", "declared effective")
EVIDENCE = {"vectors": [VECTORS, 0], "comparisons": [COMPARED, 0]}
VERDICT = {"architecture": "text", "length": "count", "noise": "size", "outcome": OUTCOMES}
AUDIT = {"claim": VERDICT | {"layers": [LAYER, 1]}, "witness": [EVIDENCE, 1]}


def check_audit(claim: Any, witness: Any) -> Told:
    """Check that verdicts follow from the sampled vectors, the values and the declared law of each layer."""
    layers, counts = claim["layers"], dict.fromkeys(VERDICTS, 0)
    _require(len(witness) == len(layers), "witness", "must have an entry per layer")
    places = {(layer["stack"], layer["layer"]) for layer in layers}
    _require(len(places) == len(layers), "claim.layers", "must name each layer once")
    _require(claim["noise"] <= MOST_NOISE, "claim.noise", "is above the rounding of bfloat16")
    tolerance = arb(ANGLE) + NOISE * arb(claim["noise"])
    alone = departing = 0  # Layers with a verdict but no vectors, and with a departure but no verdict.
    for number, (layer, evidence) in enumerate(zip(layers, witness, strict=True)):
        here, there, verdict = f"claim.layers[{number}]", f"witness[{number}]", layer["verdict"]
        numbers = [part for part in layer["module"].split(".") if part.isdecimal()] or ["0"]
        _require(str(layer["layer"]) == numbers[0], f"{here}.module", "must lie in the layer")
        kind: Any = layer["law"].get("kind") if isinstance(layer["law"], dict) else None
        _check(kind, tuple(LAWS), f"{here}.law.kind")
        _check(layer["law"], LAWS[kind], f"{here}.law")
        agrees = _follows(layer["law"], evidence, f"{here}.law", there, tolerance, claim["length"])
        for place, one in enumerate(evidence["comparisons"]):
            agrees &= _equal(one, f"{there}.comparisons[{place}]")
        wrong = {"matches": not agrees or not any(evidence.values()), "differs": agrees}.get(verdict, False)
        _require(not wrong, f"{here}.verdict", f"is {verdict!r}, which does not follow from the evidence")
        counts[verdict] += 1
        alone += kind == "other" and verdict in CHECKED
        departing += verdict not in CHECKED and not agrees
    least = 2 if counts["differs"] else int(counts["matches"] < len(layers))
    worse = OUTCOMES.index(claim["outcome"]) - least
    _require(worse >= 0, "claim.outcome", f"is better than {OUTCOMES[least]!r}, that of the layers")
    checked = counts["matches"] + counts["differs"]
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in CHECKED if counts[verdict]) or "none"
    near = f"pairs are compared to within {float(2 * tolerance):.2g} of their size or of the median one's"
    proved = f"the verdicts of {checked} layers ({told}) follow from what was measured; {near}"
    rests = ["measurements are of all layers and heads of the subject; laws and values are as declared"]
    rests += [f"{alone} of these layers are shown by compared values alone"] * (alone > 0)
    rests += [f"of {len(layers) - checked} layers, {departing} of which depart, no verdict is checked"] * (
        least == 1
    )
    rests += [f"the audit ended with {claim['outcome']!r} by what it found beside these layers"] * (worse > 0)
    return [proved], rests


def _equal(one: Any, where: str) -> bool:
    """Whether two values are the same, numbers up to their tolerance."""
    declared, effective, within = one["declared"], one["effective"], one["tolerance"]
    _require(within <= 0.05, f"{where}.tolerance", "must be at most 0.05")
    if any(isinstance(value, str | bool) for value in (declared, effective)):
        return type(declared) is type(effective) and declared == effective
    return bool(abs(arb(declared) - effective) <= within * max(abs(declared), abs(effective)))


def _follows(law: Any, evidence: Any, here: str, there: str, tolerance: arb, length: int) -> bool:
    r"""Whether sampled vectors turn by :math:`z_t = z_0 e^{\pm i\omega t}` in their pairs alone."""
    bare = law["kind"] == "other"
    _require(bare == (not evidence["vectors"]), f"{there}.vectors", "must go with the law")
    start, width, frequencies = law.get("start", 0), law.get("width", 0), law.get("frequencies", [])
    _require(2 * len(frequencies) == width, f"{here}.frequencies", "must be one per pair")
    if frequencies:
        _check_schedule(law["schedule"], frequencies, here)
    step, gap = (2, 1) if law.get("pairing") == "adjacent" else (1, width // 2)
    firsts = range(start, start + step * (width // 2), step)
    turning = {*firsts, *(j + gap for j in firsts)}
    follows = True
    seen: dict[str, list[int]] = {"queries": [], "keys": []}
    for number, one in enumerate(evidence["vectors"]):
        where, positions, rows = f"{there}.vectors[{number}]", one["positions"], one["values"]
        seen[one["side"]].append(one["head"])
        rising = all(a < b for a, b in pairwise([*positions, length])) and len(rows) == len(positions)
        _require(rising, f"{where}.positions", "must rise, one per vector")
        alike = {len(row) for row in rows} == {len(rows[0])} and len(rows[0]) >= max(start + width, 1)
        _require(alike, f"{where}.values", "must be vectors of one width that holds the pairs")
        pairs = [[acb(row[j], row[j + gap]) for j in firsts] for row in rows]
        others = [[arb(x) for j, x in enumerate(row) if j not in turning] for row in rows]
        filled = any(rows[0]) and 2 * pairs[0].count(acb(0)) <= len(firsts)
        _require(filled, f"{where}.values", "must not begin with zeros, nor most pairs")
        for position, turned, kept in zip(positions, pairs, others, strict=True):
            angles = (law["sense"] * arb(w) * (position - positions[0]) for w in frequencies)
            wanted = [z * acb(0, angle).exp() for z, angle in zip(pairs[0], angles, strict=True)]
            follows &= _near(wanted, turned, 2 * tolerance) and _near(others[0], kept, tolerance)
    complete = all(sorted(heads) == list(range(len(heads))) for heads in seen.values())
    whole = complete and (bare or all(seen.values()))
    _require(whole, f"{there}.vectors", "must hold every head of queries and of keys once")
    return follows


def _near(wanted: list[Any], found: list[Any], within: arb) -> bool:
    """Whether each value is off by at most a share of its size, or of the median one's if that is larger."""
    sizes = [abs(value) for value in wanted]
    middle = sorted(sizes, key=float)[len(sizes) // 2] if sizes else arb(0)
    both = zip(wanted, found, sizes, strict=True)
    return all(bool(abs(a - b) <= within * size.max(middle)) for a, b, size in both)


def _check_schedule(schedule: Any, frequencies: list[float], here: str) -> None:
    """Compare frequencies with those of the schedule, where it is one of those known here."""
    kind: Any = schedule.get("type") if isinstance(schedule, dict) else None
    _check(kind, tuple(SCHEDULES), f"{here}.schedule.type")
    names, rule = SCHEDULES[kind]
    _check(schedule, {"type": "text"} | _fields("size", names), f"{here}.schedule")
    given = [arb(schedule[name]) for name in names.split()]
    for j, stated in enumerate(frequencies if names else ()):
        wanted = rule(arb(j) / len(frequencies), *given)
        near = abs(stated - wanted) <= 1e-6 * wanted
        _require(near, f"{here}.frequencies", f"pair {j} is not the schedule's")


def _geometric(share: arb, base: arb, factor: Any) -> arb:
    return (-base.log() * share).exp() / factor


def _llama3(share: arb, base: arb, factor: arb, low: arb, high: arb, original: arb) -> arb:
    """Frequencies below `low` turns in the original length are divided, those above `high` are not."""
    plain = _geometric(share, base, 1)
    kept = ((original * plain / (2 * arb.pi()) - low) / (high - low)).max(arb(0)).min(arb(1))
    return (1 - kept) * plain / factor + kept * plain


SCHEDULES: dict[str, tuple[str, Callable[..., arb]]] = {
    "geometric": ("base factor", _geometric),
    "llama3": ("base factor low high original", _llama3),
    "listed": ("", _geometric),
}
KINDS: dict[str, tuple[dict[str, Any], Callable[[Any, Any], Told]]] = {
    "attention": (ATTENTION, check_attention),
    "eigenvalues": (EIGENVALUES, check_eigenvalues),
    "audit": (AUDIT, check_audit),
}
