"""Which part of Lazy Attention removes the sink, and does it need relative positions?"""

from harness.declare import Experiment

_PARTS = ("bias=off,elastic=off", "elastic=off", "bias=off", "")

EXPERIMENT = Experiment(
    question="Which part of Lazy Attention removes the sink on Bigram-Backcopy, by rotary and by learned positions?",
    expectation="Softmax with or without the bias over distance parks its idle head on the first token, Sink_1 above "
    "90 %; the threshold lets a row sum to less than one, so that its arms show next to none, raw and proxy, under "
    "either kind of positions. The trigger loss is the same everywhere: the sink is how softmax solves the task, and "
    "no hindrance to it.",
    metric="trigger_loss_nats",
    task="backcopy",
    arms=(
        *(f"lazy[{parts}]" if parts else "lazy" for parts in _PARTS),
        *(f"lazy[{parts},rope=off,model.positions=learned]".replace("[,", "[") for parts in _PARTS),
    ),
)
