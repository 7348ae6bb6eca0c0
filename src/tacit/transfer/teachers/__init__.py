"""Teachers: an ensemble of which every record has a part in one member only.

- ``Teachers`` is the whole: it assigns the records, trains, keeps and asks.
- ``assigned`` says which teacher a record goes to.
- ``views`` shows a teacher more than the images it has.

What teachers learn, their sizes and their votes are private; only what an aggregator answers of
their votes may leave.
"""

from __future__ import annotations

from tacit.transfer.teachers.ensemble import Teachers, assigned
from tacit.transfer.teachers.records import views

__all__ = ["Teachers", "assigned", "views"]
