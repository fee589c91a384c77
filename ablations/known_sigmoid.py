"""A known answer: sigmoid attention forms a sink only where its rows are normalised."""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="Does sigmoid attention sink on Bigram-Backcopy once its rows sum to one, and only then?",
    expectation="Sink_1 near 0 for sigmoid, as for softmax above 90 % once each row is divided by its sum (direction "
    "after arXiv 2410.10781: 0.44 % against 30 % at 60M). The scalar bias changes how fast it learns, not the sink.",
    metric="trigger_loss_nats",
    task="backcopy",
    arms=("softmax", "sigmoid", "sigmoid[row_norm=on]", "sigmoid[bias=off]", "sigmoid[bias=off,row_norm=on]"),
)
