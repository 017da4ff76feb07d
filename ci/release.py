"""Builds the files of a release for one target. `release.py TARGET DIR`

Writes an archive with the command, its SHA-256, and its list of dependencies (SBOM, in CycloneDX) to DIR. The command also
contains this list, which `cargo audit bin` reads. Needs cargo-auditable and cargo-cyclonedx; for Linux, cargo-zigbuild
and zig, which link against an old C library.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

FEATURES = "full,otel"
# The oldest C library: that of Debian 11 and RHEL 9.
GLIBC = "2.31"


def run(*command, **options):
    print("$", *command, flush=True)
    return subprocess.run(command, check=True, text=True, **options)


def metadata():
    told = run("cargo", "metadata", "--no-deps", "--format-version=1", stdout=subprocess.PIPE).stdout
    told = json.loads(told)
    return Path(told["target_directory"]), next(each["version"] for each in told["packages"] if each["name"] == "idmill-cli")


def build(target, home):
    """Returns the built command."""
    linux = "linux" in target
    versioned = f"{target}.{GLIBC}" if target.endswith("linux-gnu") else target
    run("cargo", "auditable", "zigbuild" if linux else "build", "--locked", "--release", "--package=idmill-cli",
        f"--features={FEATURES}", f"--target={versioned}")
    return home / target / "release" / ("idmill.exe" if "windows" in target else "idmill")


def bill_of_materials(target, file):
    # cargo-cyclonedx writes next to each manifest.
    run("cargo", "cyclonedx", "--manifest-path=crates/cli/Cargo.toml", f"--features={FEATURES}", f"--target={target}",
        "--format=json", "--describe=binaries", "--spec-version=1.5")
    written = [*Path("crates/cli").glob("*.cdx.json")]
    shutil.move(next(each for each in written if each.name.startswith("idmill_bin") or "bin" in each.name), file)
    for other in Path(".").rglob("*.cdx.json"):
        if file.parent not in other.parents:
            other.unlink()


def pack(command, name, directory):
    """Returns the archive, which has one directory."""
    contents = [command, *map(Path, ("README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"))]
    if command.suffix == ".exe":
        archive = directory / f"{name}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for each in contents:
                packed.write(each, f"{name}/{each.name}")
    else:
        archive = directory / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            for each in contents:
                packed.add(each, f"{name}/{each.name}")
    return archive


def main():
    target, directory = sys.argv[1], Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    home, version = metadata()
    command = build(target, home)
    name = f"idmill-{version}-{target}"
    archive = pack(command, name, directory)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (directory / f"{archive.name}.sha256").write_text(f"{digest}  {archive.name}\n")
    bill_of_materials(target, directory / f"{name}.cdx.json")
    print(f"{archive}: {archive.stat().st_size:,} bytes, {digest}")


main()
