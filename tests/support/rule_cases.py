"""For each code a spec that gets it, and the nearest spec that does not: data for the rules' tests and the goldens."""

from __future__ import annotations

import cases_adapted
import cases_attention
import cases_best
import cases_clusters
import cases_context_parallel
import cases_continued
import cases_data
import cases_data_loading
import cases_deepspeed
import cases_distill
import cases_evaluation
import cases_extras
import cases_method
import cases_names
import cases_numerics
import cases_optimizer
import cases_run
import cases_secrecy
import cases_slurm
import cases_strategy
import cases_sweep
import cases_syntax
import cases_tuned
from case_support import Case

CASES: tuple[Case, ...] = (
    *cases_names.CASES,
    *cases_run.CASES,
    *cases_secrecy.CASES,
    *cases_optimizer.CASES,
    *cases_best.CASES,
    *cases_clusters.CASES,
    *cases_slurm.CASES,
    *cases_evaluation.CASES,
    *cases_numerics.CASES,
    *cases_attention.CASES,
    *cases_strategy.CASES,
    *cases_context_parallel.CASES,
    *cases_deepspeed.CASES,
    *cases_data.CASES,
    *cases_data_loading.CASES,
    *cases_method.CASES,
    *cases_continued.CASES,
    *cases_distill.CASES,
    *cases_adapted.CASES,
    *cases_sweep.CASES,
    *cases_tuned.CASES,
    *cases_extras.CASES,
)
SYNTAX = cases_syntax.CASES
