"""One module for each version of the ledger's tables."""
