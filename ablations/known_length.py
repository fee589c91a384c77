"""A known answer: whose loss holds past the training length?"""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="Whose loss holds at two, four and eight times the training length?",
    expectation="ALiBi's and stick-breaking's hold or fall with the length, rotary softmax's rises (arXiv 2108.12409, "
    "2410.17980). A bias table longer than the training length trains to the same bits as one of that length, and its "
    "entries past it stay 0.",
    arms=(
        "softmax",
        "softmax[positions=alibi]",
        "softmax[positions=none]",
        "stick_breaking",
        "sigmoid",
        "sigmoid[positions=alibi]",
        "lazy[bias_length=128]",
        "lazy[bias_length=512]",
    ),
)
