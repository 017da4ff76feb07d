"""Builds the files of a release for one target. `release.py TARGET DIR`

Writes three files to DIR: an archive with the command and the files of `deploy/` that a server needs, the
SHA-256 of the archive, and the command's list of dependencies (SBOM, in CycloneDX). The command also contains
this list, which `cargo audit bin` reads. Needs cargo-auditable and cargo-cyclonedx; for Linux, cargo-zigbuild and
zig, which link against an old C library.
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
# The oldest supported glibc: that of Debian 11. RHEL 9 has 2.34.
GLIBC = "2.31"


def run(*command, **options):
    print("$", *command, flush=True)
    return subprocess.run(command, check=True, text=True, **options)


def metadata():
    """Returns the build directory, and the version and the directory of each package."""
    told = json.loads(run("cargo", "metadata", "--no-deps", "--format-version=1", stdout=subprocess.PIPE).stdout)
    packages = {each["name"]: (each["version"], Path(each["manifest_path"]).parent) for each in told["packages"]}
    return Path(told["target_directory"]), packages


def build(target, home):
    """Returns the built command."""
    linux = "linux" in target
    versioned = f"{target}.{GLIBC}" if target.endswith("linux-gnu") else target
    run("cargo", "auditable", "zigbuild" if linux else "build", "--locked", "--release", "--package=idmill-cli",
        f"--features={FEATURES}", f"--target={versioned}")
    return home / target / "release" / ("idmill.exe" if "windows" in target else "idmill")


def bill_of_materials(target, packages, file):
    run("cargo", "cyclonedx", "--manifest-path=crates/cli/Cargo.toml", f"--features={FEATURES}", f"--target={target}",
        "--format=json", f"--override-filename={file.stem}", "--spec-version=1.5")
    # cargo-cyclonedx writes a file for each package of the workspace.
    for name, (_, directory) in packages.items():
        if name == "idmill-cli":
            shutil.move(directory / file.name, file)
        else:
            (directory / file.name).unlink()


def contents(command):
    """Returns each file of the archive, and its path in the archive."""
    pages = [Path(page) for page in ("README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT")]
    # The guide names these files by their path in the repository.
    deployed = [Path("deploy/idmill.toml"), *sorted(Path("deploy").glob("systemd/*")),
                Path("deploy/prometheus/idmill.rules.yaml"), Path("deploy/grafana/idmill.json")]
    return [(command, command.name), *((file, file.as_posix()) for file in pages + deployed)]


def pack(command, name, directory):
    """Returns the archive, which has one directory."""
    if command.suffix == ".exe":
        archive = directory / f"{name}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for file, path in contents(command):
                packed.write(file, f"{name}/{path}")
    else:
        archive = directory / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            for file, path in contents(command):
                packed.add(file, f"{name}/{path}")
    return archive


def main():
    target, directory = sys.argv[1], Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    home, packages = metadata()
    command = build(target, home)
    name = f"idmill-{packages['idmill-cli'][0]}-{target}"
    archive = pack(command, name, directory)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (directory / f"{archive.name}.sha256").write_text(f"{digest}  {archive.name}\n")
    bill_of_materials(target, packages, directory / f"{name}.cdx.json")
    print(f"{archive}: {archive.stat().st_size:,} bytes, {digest}")


main()
