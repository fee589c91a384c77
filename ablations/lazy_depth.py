"""Do the parts of Lazy Attention behave alike in a deeper model? Declared for a larger budget."""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="Do the verdicts on the parts of Lazy Attention hold in eight layers?",
    expectation="The threshold costs more with depth: each silent layer passes less gradient to those below it.",
    arms=("lazy[bias=off,elastic=off]", "lazy[elastic=off]", "lazy[bias=off]", "lazy"),
    settings={"model": {"num_layers": 8}},
)
