"""The script that made the reference needs packages that the tests do without."""

collect_ignore = ["reference"]
