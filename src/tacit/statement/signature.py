"""Who claims it: an Ed25519 signature over a statement, which proves nothing else.

A key pair is made with ``openssl genpkey -algorithm ed25519 -out key.pem`` and
``openssl pkey -in key.pem -pubout -out public.pem``. The signature covers every field of the
statement but its own value, as canonical JSON: names sorted, no spaces, UTF-8.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tacit._validation import shown, text
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_DOMAIN: Final = b"tacit statement, signature 1\n"  # a key may sign other things as well
_KEY, _VALUE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{128}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature, with the key that fits it.

    Args:
        by: Whom the signer says they are; only somebody who knows the key can tell.
        key: The public key, 32 bytes in hexadecimal.
        value: The signature, 64 bytes in hexadecimal.
    """

    by: str
    key: str
    value: str

    def __post_init__(self) -> None:
        text("signature's by", self.by, longest=200)
        for name, pattern in (("key", _KEY), ("value", _VALUE)):
            held = getattr(self, name)
            if not isinstance(held, str) or not pattern.fullmatch(held):
                raise InvalidArgument(f"signature's {name} must be hexadecimal, got {shown(held)}")

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the public key, as ``fingerprint`` writes it."""
        return fingerprint(bytes.fromhex(self.key))

    @property
    def signer(self) -> str:
        """The name, if there is one, and the key's fingerprint."""
        return f"{self.by} ({self.fingerprint})" if self.by else self.fingerprint


def read(value: object) -> Signature | None:
    """The signature from itself, or from the dictionary that JSON holds; None if there is none."""
    if value is None or isinstance(value, Signature):
        return value
    if isinstance(value, dict) and set(value) == {"by", "key", "value"}:
        return Signature(**value)
    raise InvalidArgument(f"signature must be a Signature or None, got {shown(value)}")


def fingerprint(raw: bytes) -> str:
    """The SHA-256 of a public key, by which people compare keys.

    It is what ``openssl pkey -pubin -in public.pem -outform DER | tail -c 32 | sha256sum`` prints.
    """
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def canonical(plain: Mapping[str, Any], by: str, key: str) -> bytes:
    """What is signed: the statement in JSON's types, with the signer, in one form only."""
    whole = {**plain, "signature": {"by": by, "key": key}}
    line = json.dumps(
        whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return _DOMAIN + line.encode()


def sign(plain: Mapping[str, Any], key: Ed25519PrivateKey | bytes, by: str) -> Signature:
    """Signs with a private key, or with one in PEM."""
    own = private_key(key) if isinstance(key, bytes) else key
    public = _raw(own.public_key()).hex()
    text("by", by, longest=200)
    return Signature(by=by, key=public, value=own.sign(canonical(plain, by, public)).hex())


def fits(plain: Mapping[str, Any], signature: Signature) -> bool:
    """Whether the signature is that of its own key over this statement."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only for who signs
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key))
    signed = canonical(plain, signature.by, signature.key)
    try:
        key.verify(bytes.fromhex(signature.value), signed)
    except InvalidSignature:
        return False
    return True


def same_key(signature: Signature, public: Ed25519PublicKey | bytes) -> bool:
    """Whether ``public``, a key or one in PEM, is the key of the signature."""
    known = public_key(public) if isinstance(public, bytes) else public
    return _raw(known).hex() == signature.key


def private_key(pem: bytes, password: bytes | None = None) -> Ed25519PrivateKey:
    """A private key from PEM; anything but Ed25519 is refused, and the key is in no message."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_private_key,
    )

    try:
        key = load_pem_private_key(pem, password)
    except TypeError:
        raise InvalidArgument(
            "key needs a password, or has none: give it, or leave it out"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidArgument("key must be a private key in PEM, with the right password") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InvalidArgument("key must be an Ed25519 key: openssl genpkey -algorithm ed25519")
    return key


def public_key(pem: bytes) -> Ed25519PublicKey:
    """A public key from PEM; anything but Ed25519 is refused."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_public_key,
    )

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidArgument(
            "public_key must be a public key in PEM: openssl pkey -in key.pem -pubout"
        ) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InvalidArgument("public_key must be an Ed25519 key")
    return key


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes_raw()
