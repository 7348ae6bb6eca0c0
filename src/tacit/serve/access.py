"""Who may do what: keys with a role, links that work once, and sessions.

A key is 256 random bits, so that its plain SHA-256 is all that has to be kept of it. What the
ledger notes of whoever acts is another hash of the key, its *fingerprint*.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, final

from tacit import _files
from tacit.errors import InvalidArgument
from tacit.ledger.budget import look_of
from tacit.ledger.requests import ROLES, Person

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Value = TypeVar("Value")
LIFETIME: Final = 12 * 3600.0  # seconds of a session, and of a link that nobody used
_MOST: Final = 1000  # sessions and links at a time; the oldest are forgotten
_MOST_EACH: Final = 20  # sessions of one person, so that nobody signs others out
_PREFIX: Final = "tacit-key-"


@final
@dataclass(frozen=True, slots=True)
class Key:
    """Somebody's key: the SHA-256 of the secret, never the secret."""

    name: str
    role: str
    sha256: str

    @property
    def person(self) -> Person:
        """Its holder, as the ledger knows them."""
        fingerprint = hashlib.sha256(b"tacit fingerprint " + self.sha256.encode()).hexdigest()
        return Person(self.name, self.role, fingerprint[:32])


@final
@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has shown who it is; ``csrf`` comes back with every form that it sends."""

    person: Person
    csrf: str
    until: float

    def may(self, role: str) -> bool:
        """Whether the role is at least this one: an officer may do what an engineer may."""
        return ROLES.index(self.person.role) >= ROLES.index(role)


@final
@dataclass(slots=True)
class Access:
    """The keys of a server, and who is signed in; threads may use it at once.

    Guarantee:
        A link works once. A session is opened by a key or a link only, and nobody can guess the
        name of one: 256 bits from the system's generator. Nothing of it is written down.
    """

    keys: Sequence[Key]
    _sessions: OrderedDict[str, Session] = field(default_factory=OrderedDict)
    _links: OrderedDict[str, tuple[Person, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def link(self, person: Person) -> str:
        """A token that opens one session for ``person``."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            _keep(self._links, _digest(token), (person, _now() + LIFETIME))
        return token

    def enter(self, token: str) -> str | None:
        """Exchanges a link's token for the name of a session; None if it is not valid any more."""
        with self._lock:
            person, until = self._links.pop(_digest(token), (None, 0.0))
        return None if person is None or until < _now() else self._open(person)

    def sign_in(self, secret: str) -> str | None:
        """The name of a session for whoever has this key; None if nobody has."""
        given = _digest(secret.strip())
        found = [one for one in self.keys if hmac.compare_digest(one.sha256, given)]
        return self._open(found[0].person) if found else None

    def session(self, name: str | None) -> Session | None:
        """The session of this name, unless it has ended."""
        if not name:
            return None
        with self._lock:
            found = self._sessions.get(_digest(name))
        return found if found is not None and found.until >= _now() else None

    def leave(self, name: str) -> None:
        """Ends a session."""
        with self._lock:
            self._sessions.pop(_digest(name), None)

    def _open(self, person: Person) -> str:
        name = secrets.token_urlsafe(32)
        session = Session(person, secrets.token_urlsafe(32), _now() + LIFETIME)
        with self._lock:
            own = [digest for digest, one in self._sessions.items() if one.person == person]
            for digest in own[: len(own) + 1 - _MOST_EACH]:
                del self._sessions[digest]
            _keep(self._sessions, _digest(name), session)
        return name


def local_people() -> tuple[Person, Person, Person]:
    """A viewer, an engineer and an officer for one machine, each with a key that nobody keeps."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return tuple(
        Key(f"{user}, {role} on this machine", role, _digest(secrets.token_urlsafe(32))).person
        for role in ROLES
    )  # type: ignore[return-value]  # one for each of the three roles


# ---- the file of keys


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys that a file holds.

    Raises:
        InvalidArgument: with one line that names the file.
    """
    try:
        plain = _files.read_json(path)
        keys = tuple(Key(one["name"], one["role"], one["sha256"]) for one in plain["keys"])
        people = [one.person for one in keys]  # refuses names and roles that are none
        if not all(len(bytes.fromhex(one.sha256)) == 32 for one in keys):
            raise ValueError("a key is no SHA-256")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"--keys {path} cannot be read: {reason}") from None
    looks, own = {look_of(one.name) for one in people}, {one.key for one in people}
    for kind, found in (("name", looks), ("key", own)):
        if len(found) < len(people):
            raise InvalidArgument(f"--keys {path} has a {kind} twice; each person has one key")
    return keys


def add_key(path: Path, name: str, role: str) -> str:
    """Makes a key, and keeps its SHA-256 in the file; the key itself is returned, and nowhere else.

    Guarantee: the file is its owner's alone, and whole after a crash.
    """
    keys = read_keys(path) if path.exists() else ()
    Person(name, role, "0" * 32)  # refuses what is no name or role before anything is written
    for one in keys:  # two keys of one person would approve what they asked for
        if look_of(one.name) == look_of(name):
            raise InvalidArgument(
                f"{one.name!a} has a key in {path} already; remove it there first"
            )
    secret = _PREFIX + secrets.token_urlsafe(32)
    made = Key(name, role, _digest(secret))
    plain = {"keys": [{"name": one.name, "role": one.role, "sha256": one.sha256}
                      for one in (*keys, made)]}  # fmt: skip
    text = json.dumps(plain, indent=2, ensure_ascii=False)
    try:
        _files.put(path, f"{text}\n".encode(), mode=_files.OWNER_ONLY)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidArgument(
            f"--keys {path} cannot be written: {reason}; name a file in a folder of yours"
        ) from None
    return secret


def _keep(place: OrderedDict[str, Value], name: str, value: Value) -> None:
    place[name] = value
    while len(place) > _MOST:
        place.popitem(last=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _now() -> float:
    return time.monotonic()
