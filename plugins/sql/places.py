"""Where a database had better not lie: on another machine's disk, or in a folder that is synchronised."""

import os
from collections.abc import Iterator
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
REMOTE = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "vboxsf",
    ]
)
SYNCHRONISED = (
    "dropbox",
    "google drive",
    "googledrive",
    "icloud",
    "mobile documents",
    "nextcloud",
    "onedrive",
    "owncloud",
    "pcloud",
    "syncthing",
)
ADVICE = "set BOT_DATA_DIR or DATABASE_URL to a folder on this machine's own disk, and copy backups there"


def doubts(path: Path, mounts: Path = MOUNTS) -> Iterator[str]:
    """Say what speaks against keeping a database at this place."""
    place = os.path.realpath(path)
    kind = _kind_of_disk(place, mounts)
    if kind in REMOTE:
        yield (
            f"the database {path} lies on a network's disk ({kind}), where locks and commits cannot be "
            f"relied on: {ADVICE}"
        )
    folders = Path(place).parent.parts
    name = next((one for one in folders if one.casefold().startswith(SYNCHRONISED)), None)
    if name is not None:
        yield (
            f"the database {path} lies in a folder that is synchronised ({name!r}), which may replace it "
            f"under way: {ADVICE}"
        )


def _kind_of_disk(place: str, mounts: Path) -> str:
    """Find the kind of file system by the longest mount point above a place; blank where nobody knows."""
    best, kind = "", ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        front, _, back = line.partition(" - ")
        point = front.split()[4].encode().decode("unicode_escape")
        if len(point) >= len(best) and (place == point or place.startswith(point.rstrip("/") + "/")):
            best, kind = point, back.split()[0]
    return kind
