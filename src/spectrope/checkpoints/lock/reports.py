"""Reports of a checked lock for other programs: JUnit for test reports, SARIF for code scanning."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from spectrope.checkpoints.audit.catalogue import fault
from spectrope.checkpoints.lock.checked import CheckedLock
from spectrope.checkpoints.lock.files import line_of
from spectrope.checkpoints.lock.move import Move
from spectrope.console.terminal import harmless
from spectrope.core import __version__
from spectrope.store import write_output

SUITE = "spectrope check"
NOT_IN_XML = re.compile(r"[\ud800-\udfff\ufffe\uffff]")  # Beside characters that are harmful in a terminal.
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def write_report(text: str, path: Path) -> None:
    """Write a report, whole or not at all.

    Raises:
        StoreError: If it cannot be written.
    """
    write_output(path, text.encode())


def junit(checked: CheckedLock) -> str:
    """A test case per layer, embedding and serving mode, and per other place that changed, as JUnit XML;
    without a change, a place that could not be compared in whole is skipped."""
    places = list(checked.places())
    failed = [where for where, _, _ in places if checked.at(where)]
    skipped = [where for where, _, _ in places if checked.why_not(where) and where not in failed]
    numbers = {"tests": len(places), "failures": len(failed), "errors": 0, "skipped": len(skipped)}
    counts = {name: str(number) for name, number in numbers.items()}
    suite = ElementTree.Element("testsuite", {"name": SUITE, **counts})
    for where, _, _ in places:
        case = ElementTree.SubElement(suite, "testcase", {"classname": checked.before.named, "name": where})
        if moves := checked.at(where):
            failure = ElementTree.SubElement(
                case, "failure", {"message": str(moves[0]), "type": moves[0].code}
            )
            failure.text = "\n".join([*map(str, moves), f"changed since the lock: {checked.between}"])
        elif where in skipped:
            ElementTree.SubElement(case, "skipped", {"message": checked.why_not(where)})
        if accepted := [f"accepted: {one}" for one in checked.accepted if one.where == where]:
            ElementTree.SubElement(case, "system-out").text = "\n".join(accepted)
    if checked.uncovered:
        ElementTree.SubElement(suite, "system-out").text = f"Not compared: {'; '.join(checked.uncovered)}."
    return _written(suite, counts)


def junit_of_failure(told: str, kind: type[Exception]) -> str:
    """One test case that ended in an error, where nothing could be compared."""
    counts = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
    suite = ElementTree.Element("testsuite", {"name": SUITE, **counts})
    case = ElementTree.SubElement(suite, "testcase", {"classname": SUITE, "name": "lock"})
    ElementTree.SubElement(case, "error", {"message": told, "type": kind.__name__})
    return _written(suite, counts)


def _written(suite: ElementTree.Element, counts: dict[str, str]) -> str:
    suites = ElementTree.Element("testsuites", counts)
    suites.append(suite)
    for one in suites.iter():
        one.attrib.update({key: _in_xml(value) for key, value in one.attrib.items()})
        one.text = one.text and _in_xml(one.text)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _in_xml(text: str) -> str:
    """Text without the characters that XML does not have, which names may hold."""
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", harmless(text))


def sarif(checked: CheckedLock, path: Path) -> str:
    """What changed, as SARIF 2.1.0 with places in the lock's file, and notifications of what could not be
    compared, of accepted departures and of what else was not compared."""
    codes = sorted({move.code for move in checked.moves})
    lines = [_result(move, checked.between, path, codes.index) for move in checked.moves]
    said = [("warning", f"{one.where}: {one.why}") for one in checked.uncompared]
    said += [("note", f"accepted: {one.where}: {one}") for one in checked.accepted]
    said += [("note", f"Not compared: {one}.") for one in checked.uncovered]
    notes = [{"level": level, "message": {"text": text}} for level, text in said]
    return _log(codes, lines, notes)


def sarif_of_failure(told: str) -> str:
    """A failed run without results, where nothing could be compared."""
    return _log((), (), [{"level": "error", "message": {"text": told}}], successful=False)


def _log(
    codes: Sequence[str],
    results: Sequence[dict[str, Any]],
    notes: Sequence[dict[str, Any]],
    *,
    successful: bool = True,
) -> str:
    driver = {"name": "spectrope", "version": __version__, "rules": [_rule(code) for code in codes]}
    ran = {"executionSuccessful": successful, "toolExecutionNotifications": notes}
    run = {"tool": {"driver": driver}, "invocations": [ran], "results": results}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    entry = fault(code)
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in entry.name.split()),
        "shortDescription": {"text": entry.name},
        "fullDescription": {"text": entry.symptom},
        "help": {"text": f"{entry.cause} {entry.fix}"},
        "defaultConfiguration": {"level": "error"},
    }


def _result(move: Move, between: str, path: Path, index: Callable[[str], int]) -> dict[str, Any]:
    region = {"startLine": line_of(path, move.where.removeprefix("layer "))}
    location = {"artifactLocation": {"uri": path.as_posix()}, "region": region}
    return {
        "ruleId": move.code,
        "ruleIndex": index(move.code),
        "level": "error",
        "message": {"text": f"{move.where}: {move}. Changed since the lock: {between}."},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"spectropeMove/v1": f"{move.where}: {move.what}"},
    }
