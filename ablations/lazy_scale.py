"""Do the verdicts hold at four times the parameters and tokens? Declared for a larger budget."""

from harness.declare import Experiment

EXPERIMENT = Experiment(
    question="Do the verdicts on parts and families hold at four times the parameters and four times the tokens?",
    expectation="The order of the families stays; the differences between the parts of Lazy Attention shrink.",
    arms=("softmax", "lazy[elastic=off]", "lazy[bias=off]", "lazy", "sigmoid", "stick_breaking", "mamba"),
    settings={
        "model": {"num_layers": 4, "model_dim": 96, "num_heads": 6, "mlp_dim": 264},
        "train": {"steps": 960, "learning_rate": 5e-3},
    },
)
