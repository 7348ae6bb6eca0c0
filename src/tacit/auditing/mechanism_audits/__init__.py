"""Direct audits of ``tacit.mechanisms``: many draws on two neighbouring inputs, by name.

>>> from tacit.randomness import UnsafeSeededStream
>>> stream = UnsafeSeededStream(0, "audit")
>>> audit_mechanism("histogram", epsilon=2, draws=50_000, stream=stream).contradicted
False
"""

from __future__ import annotations

from tacit.auditing.mechanism_audits.audit import NAMES, MechanismAudit, audit_mechanism

__all__ = ["NAMES", "MechanismAudit", "audit_mechanism"]
