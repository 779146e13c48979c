"""The instrument on models that are trained here: training, ablation, probes, engines."""

__all__ = [
    "COMPARED",
    "COMPARED_TASKS",
    "CONDITIONS",
    "COSTS",
    "DATA_VERSION",
    "DECODER",
    "DEFAULT_RULE",
    "EXAMPLES",
    "EXTRAPOLATED",
    "FACTORS",
    "FILLS",
    "LOOKED",
    "MARK",
    "MEASURES",
    "OWN",
    "OWN_TASKS",
    "PROTOCOLS",
    "QUANTITIES",
    "SCALES",
    "SCALINGS",
    "SPARED",
    "UNDECIDED",
    "UNMEASURED",
    "WEIGHTS",
    "Ablation",
    "Adaptive",
    "AnyEncoding",
    "AnyExperiment",
    "AnyTask",
    "AtlasSettings",
    "AttendedHead",
    "AttendedSums",
    "BandFill",
    "Calibration",
    "Cell",
    "Condition",
    "ContentOnlyAblation",
    "Cumulative",
    "EncodingKernel",
    "Engine",
    "EngineError",
    "EpochScores",
    "Estimation",
    "Exact",
    "Experiment",
    "Fill",
    "HeadAblation",
    "HeadQuantity",
    "Job",
    "JobCost",
    "Laboratory",
    "LayerFill",
    "LayerHeads",
    "LayerSpectrum",
    "LayerTerms",
    "LearningProbe",
    "Ledger",
    "Local",
    "Measurement",
    "Method",
    "Pace",
    "PositionOnlyAblation",
    "Probe",
    "Protocol",
    "ProtocolAblation",
    "Ray",
    "RunAtlas",
    "Screen",
    "Site",
    "StateShares",
    "TableMeasure",
    "TablesByName",
    "TrainedSubject",
    "TrainingState",
    "TrainingTime",
    "Tree",
    "Trial",
    "Tuning",
    "Variant",
    "ablate",
    "ablate_apart",
    "ablated",
    "as_jobs",
    "atlas_run",
    "bands_table",
    "call_of",
    "capture_heads",
    "cell_columns",
    "cells_of",
    "certified_kernel",
    "changes_in",
    "check_lengths",
    "choose_protocol",
    "comparison_plan",
    "derangement",
    "discard_checkpoints",
    "encoding_kernels",
    "execute",
    "experiment",
    "experiment_of",
    "extrapolate",
    "fill_of",
    "fills_of",
    "fullest",
    "grid",
    "has_diverged",
    "is_bound_to_guess",
    "is_near_chance",
    "keep_drops",
    "kernel_table",
    "kernel_tables",
    "layer_spectrum",
    "layer_terms",
    "load_model",
    "longest",
    "looks",
    "makespan",
    "mean_lags",
    "read_decoder",
    "read_experiment",
    "run_for",
    "run_tuned",
    "search_slowdowns",
    "shares_table",
    "sit",
    "spectrum",
    "spectrum_table",
    "state_shares",
    "term_tables",
    "terms",
    "threads_each",
    "train",
    "trial",
    "trials_of",
    "written",
]

from .ablation.adaptive import Ledger, looks
from .ablation.banded import BandFill
from .ablation.fills.base import FILLS, Fill, LayerFill, Site, fill_of
from .ablation.gather import derangement
from .ablation.heads import ablated
from .ablation.interventions import HeadAblation, Variant
from .ablation.methods import (
    EXAMPLES,
    Adaptive,
    Cumulative,
    Exact,
    Method,
    Screen,
    TablesByName,
    TrainedSubject,
    ablate,
    ablate_apart,
    choose_protocol,
    keep_drops,
)
from .ablation.protocols import PROTOCOLS, Protocol
from .ablation.thresholds import DEFAULT_RULE
from .ablation.tree import Tree, changes_in, fills_of
from .atlas.attended import AttendedHead, AttendedSums, mean_lags
from .atlas.cells import (
    COSTS,
    SPARED,
    UNDECIDED,
    UNMEASURED,
    AtlasSettings,
    Cell,
    call_of,
    cell_columns,
    cells_of,
)
from .atlas.run import LOOKED, RunAtlas, atlas_run
from .compare import COMPARED, COMPARED_TASKS, comparison_plan
from .engines.base import Engine, EngineError
from .engines.cost import Calibration, Estimation, JobCost
from .engines.local import Local, as_jobs, execute, threads_each
from .engines.pace import Pace, makespan
from .engines.ray import Ray
from .experiments import (
    AnyExperiment,
    Laboratory,
    TrainingTime,
    read_experiment,
    written,
)
from .extrapolation.lengths import EXTRAPOLATED, check_lengths, extrapolate
from .extrapolation.scalings import SCALINGS
from .extrapolation.search import search_slowdowns
from .job import Job, discard_checkpoints, train
from .manifest import DECODER, MARK, OWN, OWN_TASKS, has_diverged, is_bound_to_guess, is_near_chance
from .measures.ablation import Ablation, ProtocolAblation
from .measures.base import MEASURES, TableMeasure
from .measures.fills import ContentOnlyAblation, PositionOnlyAblation
from .probes.heads import LayerHeads, capture_heads
from .probes.kernel import EncodingKernel, encoding_kernels
from .probes.shares import StateShares, state_shares
from .probes.spectrum import LayerSpectrum, layer_spectrum
from .probes.terms import LayerTerms, layer_terms
from .quantities.base import QUANTITIES, HeadQuantity
from .runs import DATA_VERSION, experiment_of, load_model, read_decoder, run_for
from .sizes import fullest
from .spectra.heads import (
    Measurement,
    bands_table,
    kernel_table,
    longest,
    shares_table,
    spectrum,
    spectrum_table,
)
from .spectra.kernels import kernel_tables
from .spectra.terms import term_tables, terms
from .spectra.witness import certified_kernel
from .training.conditions import CONDITIONS, Condition
from .training.config import Experiment
from .training.learning import LearningProbe
from .training.probe import Probe
from .training.scales import SCALES, AnyEncoding, AnyTask, experiment
from .training.state import WEIGHTS, EpochScores, TrainingState, sit
from .trials import FACTORS, Trial, Tuning, grid, trial, trials_of
from .tune import run_tuned
