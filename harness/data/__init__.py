"""Corpora, tokenizers and batches: seeded, fingerprinted, and split before anything else sees them."""

from __future__ import annotations

from harness.data.backcopy import NAME as BACKCOPY
from harness.data.loading import load
from harness.data.source import IGNORED, SPLITS, Batch, Evaluation, Source
from harness.data.trivial import Reference, references

__all__ = ["BACKCOPY", "IGNORED", "SPLITS", "Batch", "Evaluation", "Reference", "Source", "load", "references"]
