"""Students: trained on public points with noisy labels, and the only thing that is released.

``train_student`` trains one by a method of your choice; ``Student`` is what it gives.
"""

from __future__ import annotations

from tacit.transfer.students.methods import STUDENT_METHODS, StudentMethod, train_student
from tacit.transfer.students.student import Student

__all__ = ["STUDENT_METHODS", "Student", "StudentMethod", "train_student"]
