"""How does Lazy Attention stand against the other families?"""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="How does Lazy Attention stand against softmax, sigmoid, stick-breaking and Mamba at equal parameters?",
    expectation="At this size recurrence and a stick that prefers near keys learn soonest: Mamba and stick-breaking "
    "lead; lazy is within noise of softmax; sigmoid starts slowest and trails.",
    arms=("softmax", "lazy", "sigmoid", "stick_breaking", "mamba"),
)
