"""The web console: plan a run, ask for it, approve it, watch it, check it and hand it on.

One process, on this machine unless it is asked to be elsewhere. Pages read the ledger and the
folder of runs; whatever they write is an entry of the ledger. Secret figures (training loss, sizes
of lots) reach no page.
"""
