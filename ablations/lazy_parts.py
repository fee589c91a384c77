"""Which part of Lazy Attention earns its keep on text?"""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="Which part of Lazy Attention lowers the loss: the bias over distance, the elastic threshold, or both?",
    expectation="The bias helps a little at this size; the threshold at tau = -1 starts almost silent and costs some "
    "of it; without RoPE the bias alone carries position.",
    arms=(
        "lazy[bias=off,elastic=off]",
        "lazy[elastic=off]",
        "lazy[bias=off]",
        "lazy",
        "lazy[rope=off]",
    ),
)
