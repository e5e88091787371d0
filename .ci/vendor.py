"""Renews the libraries of the web pages: downloads each package of the manifest with npm and copies its file.

Run by `make vendor`, optionally with `PACKAGE=VERSION ...` to change versions. The manifest's hashes are those of the
copied files, so a changed file shows as a changed line; `tests/adapters/web/test_json_io.py` compares the two.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

VENDOR = Path(__file__).parents[1] / "adapters" / "web" / "pages" / "vendor"
MANIFEST = VENDOR / "manifest.json"


def fetch_package(name: str, version: str, folder: Path) -> Path:
    """Return the folder with the unpacked package. Raises CalledProcessError if npm cannot download it."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{name}@{version}"]
    archive = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    target = folder / archive.removesuffix(".tgz")
    with tarfile.open(folder / archive) as packed:
        packed.extractall(target, filter="data")
    return next(target.iterdir())  # npm packs into one folder, mostly `package`


def renew_file(entry: dict[str, str], folder: Path) -> dict[str, str]:
    """Copy the library and its licence; return its line of the manifest with the new hash."""
    package = fetch_package(entry["package"], entry["version"], folder)
    body = (package / entry["source"]).read_bytes()
    # A reference to a map that is not served would be a failed request in the browser's tools.
    lines = [line for line in body.split(b"\n") if not line.startswith(b"//# sourceMappingURL=")]
    body = b"\n".join(lines)
    (VENDOR / entry["file"]).write_bytes(body)
    (VENDOR / entry["licence_file"]).write_bytes((package / entry["licence_source"]).read_bytes())
    return {**entry, "sha256": hashlib.sha256(body).hexdigest()}


def main(changes: dict[str, str]) -> None:
    """Renew every file of the manifest. Raises SystemExit for a package that is not in it, or without npm."""
    manifest = json.loads(MANIFEST.read_text())
    unknown = changes.keys() - {entry["package"] for entry in manifest}
    if unknown:
        raise SystemExit(f"{MANIFEST.name} has no package {', '.join(sorted(unknown))}; add its line first")
    with TemporaryDirectory() as folder:
        entries = [{**entry, "version": changes.get(entry["package"], entry["version"])} for entry in manifest]
        try:
            renewed = [renew_file(entry, Path(folder)) for entry in entries]
        except FileNotFoundError as error:
            raise SystemExit(f"the libraries of the web pages cannot be renewed: {error}; npm is needed") from None
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"npm could not download a library: {error.stderr.strip()}") from None
    MANIFEST.write_text(json.dumps(renewed, indent=2) + "\n")


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
