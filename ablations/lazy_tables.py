"""How long a bias table, which rotary base? Declared for a larger budget."""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="Do the length of the bias table and the rotary base change what Lazy Attention reaches?",
    expectation="Tables past 64 entries gain nothing at this length; bases from 1,000 to 1,000,000 lie within noise.",
    arms=(
        "lazy",
        "lazy[bias_length=16]",
        "lazy[bias_length=64]",
        "lazy[rope_base=1000]",
        "lazy[rope_base=1000000]",
        "lazy[bias_std=0.02]",
    ),
)
