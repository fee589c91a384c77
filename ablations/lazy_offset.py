"""Which offset should Elastic-Softmax have?"""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="Does the start of tau, its being learned, its division by n, or a renormalised row change the loss?",
    expectation="A start of 0 is softmax and the best early on; -1 cuts every weight under 1/n, starts almost silent "
    "and ends no better. A fixed -1 loses more than a learned one. Not divided by n, -0.01 cuts nearly all weights "
    "of long rows. A renormalised row wins back what the silent start costs.",
    arms=(
        "lazy",
        "lazy[tau_start=-0.5]",
        "lazy[tau_start=0]",
        "lazy[tau=fixed]",
        "lazy[tau_start=-0.5,tau=fixed]",
        "lazy[divide_by_n=off,tau_start=-0.01]",
        "lazy[renormalise=on]",
        "lazy[output_norm=on]",
        "lazy[elastic=off]",
    ),
)
