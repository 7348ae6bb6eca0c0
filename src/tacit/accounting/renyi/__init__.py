"""Rényi divergences of every event at any order, as upper bounds."""

from __future__ import annotations

from tacit.accounting.renyi.profile import RenyiProfile, renyi_divergence, renyi_profile

__all__ = ["RenyiProfile", "renyi_divergence", "renyi_profile"]
