"""Search each variant's settings with the same effort. The only room that imports Optuna.

Reading order: `space` (what is searched) -> `effort` (how much of it, and for whom) -> `points` (the next point) ->
`journal` (the studies on disk) -> `ledger` (which trial is whose, and what became of it) -> `search` (workers) ->
`results` (what was found) -> `chosen` (from best settings to the arms of a table), `grid` (one setting, for all arms).
Nothing is imported with the room itself: a report reads `results` without torch.
"""
