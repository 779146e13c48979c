"""Run folders and rows on disk: the only place that touches disk for results."""

__all__ = [
    "FIELD",
    "RESULTS_VERSION",
    "Certified",
    "CheckedFolder",
    "Complaint",
    "PackedRun",
    "Run",
    "append_record",
    "check_certificate",
    "check_folders",
    "check_place",
    "disk_errors",
    "find_runs",
    "load_run",
    "open_run",
    "packed",
    "read_records",
    "renumbered",
    "replace_file",
    "require_file",
    "resolve_run",
    "set_aside",
    "survey",
    "temporary_folder",
    "unpacked",
    "weights_and_config",
    "write_certificate",
    "write_output",
    "write_parquet",
]

from .certificates import Certified, check_certificate, weights_and_config, write_certificate
from .check import CheckedFolder, check_folders, set_aside
from .errors import disk_errors
from .files import replace_file, require_file, write_output, write_parquet
from .folders import find_runs, resolve_run, survey
from .numbering import FIELD, renumbered
from .records import Complaint, append_record, read_records
from .run import RESULTS_VERSION, Run, check_place, load_run, open_run
from .scratch import temporary_folder
from .transfer import PackedRun, packed, unpacked
