"""The key of a hub's secrets: where it comes from, whether it is the right one, and its change.

It stands in PRIME_HUB_SECRETS_KEY, else in `secrets.key` of the data folder, which the first start makes. Both may hold
several keys: the row in the database says which one everything is sealed with, so a change that is cut off at any
point leaves a hub that starts.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from hub_server.database import Database, now
from hub_server.errors import NotServing
from hub_server.sandboxes.tables import SandboxNode
from hub_server.secrets.tables import Secret, SecretLink, SecretsKey, Variable
from hub_server.secrets.vault import KEY_BYTES, Vault, WrongKey, fingerprint_of
from prime_cli.core.files import write_text_atomically

VARIABLE = "PRIME_HUB_SECRETS_KEY"
FILE_NAME = "secrets.key"
_MAKE_ONE = "make one with `openssl rand -hex 32`"


@dataclass(frozen=True)
class Rotated:
    """What a change of the key did: values sealed anew, and those that were given up because no key opens them."""

    resealed: int
    forgotten: int
    fingerprint: str
    kept_in: str


def open_vault(database: Database, data_dir: Path) -> Vault:
    """Return the vault of a hub; the first start makes its key.

    Raises:
        NotServing: the key is missing, malformed or not the one that the secrets are sealed with.
    """
    keys = read_keys(data_dir)
    with database.write() as session:
        current = session.get(SecretsKey, 1)
        for key in keys:
            if current is not None and fingerprint_of(key) == current.fingerprint:
                return Vault(key)
        if current is not None and _count(session):
            raise _not_the_key(data_dir, keys, current.fingerprint)
        key = keys[0] if keys else _new_key()
        if not keys:
            _write_keys(data_dir, [key])
        _make_current(session, key)
        return Vault(key)


def rotate_key(database: Database, data_dir: Path, *, forget_lost: bool) -> Rotated:
    """Seal every value anew, in one transaction; no server may run on this database.

    The new key is the first of PRIME_HUB_SECRETS_KEY where that is set, else a fresh one in `secrets.key`. The file
    holds both keys until the transaction is through. With `forget_lost` the values are deleted when no key opens them.

    Raises:
        NotServing: the present key is not at hand, a value does not open, or there is no other key to change to.
    """
    keys = read_keys(data_dir)
    in_variable = _keys_of(os.environ.get(VARIABLE, ""), VARIABLE)
    known = [*keys, *(key for key in _keys_of_file(data_dir) if key not in keys)]
    with database.read() as session:
        row = session.get(SecretsKey, 1)
        present = next((key for key in known if row is not None and fingerprint_of(key) == row.fingerprint), None)
        if present is None and row is not None and _count(session) and not forget_lost:
            raise _not_the_key(data_dir, keys, row.fingerprint)
    if in_variable and in_variable[0] == present:
        raise NotServing(
            f"the secrets are sealed with the first key of {VARIABLE} already",
            hint=f"set it to NEW,OLD and run this again; {_MAKE_ONE}",
        )
    new = in_variable[0] if in_variable else _new_key()
    if not in_variable:
        _write_keys(data_dir, [new, *([present] if present else [])])
    with database.write() as session:
        resealed, forgotten = (_reseal(session, Vault(present), Vault(new)), 0) if present else (0, _forget(session))
        _make_current(session, new)
    if not in_variable:
        _write_keys(data_dir, [new])
    kept_in = VARIABLE if in_variable else str(data_dir / FILE_NAME)
    return Rotated(resealed, forgotten, fingerprint_of(new), kept_in)


def read_keys(data_dir: Path) -> list[bytes]:
    """Return the keys at hand; none before the first start.

    Raises:
        NotServing: one of them is no key, or the file is open to others.
    """
    return _keys_of(os.environ.get(VARIABLE, ""), VARIABLE) or _keys_of_file(data_dir)


def _keys_of_file(data_dir: Path) -> list[bytes]:
    path = data_dir / FILE_NAME
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        held = path.read_text()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise NotServing(f"cannot read {path}: {error}") from None
    if mode & 0o077:
        raise NotServing(f"others can read {path}", hint=f"chmod 600 {path}")
    keys = _keys_of(held, str(path))
    if not keys:
        raise NotServing(f"{path} is empty", hint="put the key of this hub back, from its backup")
    return keys


def _keys_of(text: str, where: str) -> list[bytes]:
    words = re.split(r"[\s,]+", text.strip()) if text.strip() else []
    if not all(re.fullmatch(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", word) for word in words):
        raise NotServing(f"{where} holds something that is not a key of {2 * KEY_BYTES} hex digits", hint=_MAKE_ONE)
    return [bytes.fromhex(word) for word in words]


def _write_keys(data_dir: Path, keys: list[bytes]) -> None:
    write_text_atomically(data_dir / FILE_NAME, "".join(f"{key.hex()}\n" for key in keys), mode=0o600)


def _new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def _not_the_key(data_dir: Path, keys: list[bytes], fingerprint: str) -> NotServing:
    path = data_dir / FILE_NAME
    where = VARIABLE if os.environ.get(VARIABLE, "").strip() else str(path)
    problem = f"the key in {where} is not" if keys else f"{path} is missing, and with it"
    return NotServing(
        f"{problem} the key that the secrets of this hub are sealed with (fingerprint {fingerprint})",
        hint=f"put that key into {VARIABLE} or {path}; when it is lost, `prime hub rotate-secrets-key --forget-lost`",
    )


def _count(session: Session) -> int:
    return sum(session.scalar(select(func.count()).select_from(table)) or 0 for table in (Secret, Variable))


def _make_current(session: Session, key: bytes) -> None:
    session.merge(SecretsKey(id=1, fingerprint=fingerprint_of(key), since=now()))


def _rows(session: Session) -> Iterator[Secret | Variable | SandboxNode]:
    yield from session.scalars(select(Secret))
    yield from session.scalars(select(Variable))
    yield from session.scalars(select(SandboxNode))  # whose secrets are not counted: without them nodes register again


def _reseal(session: Session, old: Vault, new: Vault) -> int:
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        # What the former key opens is not to stay behind in free parts of the file.
        connection.exec_driver_sql("PRAGMA secure_delete=ON")
    resealed = 0
    for row in _rows(session):
        try:
            row.sealed = new.seal(row.place, old.open(row.place, row.sealed))
        except WrongKey:
            raise NotServing(
                f"the value of {row.name} ({row.id}) does not open with the key of this hub; nothing was changed",
                hint="delete it on the hub, or restore the database from a backup",
            ) from None
        resealed += 1
    return resealed


def _forget(session: Session) -> int:
    forgotten = _count(session)
    for table in (SecretLink, Secret, Variable):
        session.execute(delete(table))
    return forgotten
