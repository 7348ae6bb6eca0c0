"""Students: trained on public points with noisy labels, and the only thing that is released.

``train_student`` trains one by a method of your choice; ``Student`` is what it gives.
"""

from __future__ import annotations

from tacit.transfer.students.student import Student
from tacit.transfer.students.training import METHODS, Method, train_student

__all__ = ["METHODS", "Method", "Student", "train_student"]
