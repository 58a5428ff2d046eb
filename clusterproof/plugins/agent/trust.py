"""Who can change a file of a node: what another user could have put there is neither run nor loaded."""

from __future__ import annotations

import errno
import os
import stat

MAX_LINKS = 40  # as many as Linux follows
ANYBODY = -1  # stands for more users than can be listed
NOGROUP = 65534


def distrust(path: str, root: str = "") -> str:
    """Why a path under a root may be another user's work, in words; empty if it cannot be. Raises OSError."""
    return next(iter(others(path, root).values()), "")


def others(path: str, root: str = "") -> dict[int, str]:
    """The users who could change it, with the reason: through the file, a folder above it, or a link to it.

    Excludes root, the caller (also through sudo), and the owner of the root itself (in a user namespace, users have
    other numbers than in the image). Raises OSError if nothing is there.
    """
    own = {0, os.geteuid(), os.stat(root or "/").st_uid, *_called_by()}
    by_user: dict[int, str] = {}
    ahead, here, links = _names(path), "", 0
    while ahead:
        name = ahead.pop()
        within, here = here, os.path.dirname(here).rstrip("/") if name == ".." else f"{here}/{name}"
        status = os.lstat(f"{root}{here}/" if name == ".." else root + here)
        if status.st_uid not in own:
            by_user.setdefault(status.st_uid, f"{here} belongs to user {status.st_uid}")
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(root + here)
            ahead += _names(target)
            here = "" if target.startswith("/") else within
        elif not (ahead and status.st_mode & stat.S_ISVTX):
            for user in _writers(root, here, status) - own:
                by_user.setdefault(user, f"{here} may be written by {'others' if user == ANYBODY else f'user {user}'}")
    return by_user


def groups_of(user: int, root: str = "") -> list[int]:
    """The groups of a user according to the root's own files, the primary one first."""
    rows = [row for row in _rows(f"{root}/etc/passwd", 4) if row[2] == str(user) and row[3].isdecimal()]
    name, primary = (rows[0][0], int(rows[0][3])) if rows else ("", NOGROUP)
    listed = (row for row in _rows(f"{root}/etc/group", 4) if name and name in row[3].split(","))
    return [primary, *(int(row[2]) for row in listed if row[2].isdecimal())]


def _called_by() -> set[int]:
    """The user who called this through sudo."""
    word = os.environ.get("SUDO_UID", "")
    return {int(word)} if not os.geteuid() and word.isascii() and word.isdecimal() else set()


def _names(path: str) -> list[str]:
    """The components of a path, the last first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _writers(root: str, path: str, status: os.stat_result) -> set[int]:
    """Who besides the owner may write, according to the mode."""
    if status.st_mode & stat.S_IWOTH:
        return {ANYBODY}
    if not status.st_mode & stat.S_IWGRP:
        return set()
    return {ANYBODY} if _has_acl(root + path) else _members(root, status.st_gid)


def _has_acl(path: str) -> bool:
    """Whether an ACL makes the group's mode apply to more users than the group."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False


def _members(root: str, group: int) -> set[int]:
    """The users of a group according to the root's own files; ANYBODY if they do not list it."""
    users = {row[0]: (row[2], row[3]) for row in _rows(f"{root}/etc/passwd", 4)}
    named = [row[3].split(",") for row in _rows(f"{root}/etc/group", 4) if row[2] == str(group)]
    numbers = [number for number, primary in users.values() if primary == str(group)]
    numbers += [users.get(name, ("",))[0] for names in named for name in names if name]
    return {int(number) if number.isdecimal() else ANYBODY for number in numbers} if named else {ANYBODY}


def _rows(file: str, columns: int) -> list[list[str]]:
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            rows = [line.rstrip("\n").split(":") for line in lines]
    except OSError:
        return []
    return [row for row in rows if len(row) >= columns]
