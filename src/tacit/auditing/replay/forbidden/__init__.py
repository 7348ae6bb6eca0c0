"""What must be refused, by component.

An attempt is right if it ends in one of tacit's own errors. Most are one small run in which one
thing is forbidden: no step may be taken after the forbidden act, and where weights were changed,
nothing may be claimed afterwards. The same run without the act must pass, or nothing would be
learnt from the others. What is tried with a file or a ledger is tried on one that was written by a
run just before.
"""
