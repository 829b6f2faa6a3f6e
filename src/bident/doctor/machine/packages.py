"""Packages that are in each other's way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import Distribution

from packaging.requirements import InvalidRequirement, Requirement

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.installed import PackagesCheck, canonical, packages

_VARIANTS = {
    "onnxruntime": (
        "onnxruntime",
        "onnxruntime-directml",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-qnn",
        "onnxruntime-training",
    ),
    "xgboost": ("xgboost", "xgboost-cpu"),
    "cv2": (
        "opencv-python",
        "opencv-python-headless",
        "opencv-contrib-python",
        "opencv-contrib-python-headless",
    ),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "intel-tensorflow"),
}
"""Packages that bring one and the same module, by that module."""


class DuplicatePackages(PackagesCheck):
    """One package, two versions in the same folder: an installation that was interrupted."""

    name = "duplicate-packages"
    title = "A package is installed twice, or half removed"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for folder in self._folders:
            versions: dict[str, list[str]] = defaultdict(list)
            for name, found in packages(folder):
                versions[name].append(found.version)
            for name, seen in sorted(versions.items()):
                if len(seen) > 1:
                    yield self._broken(
                        folder / name,
                        f"{name} is installed as {' and as '.join(sorted(seen))}",
                        "an update was interrupted, so that files of both are mixed",
                        f"python -m pip install --force-reinstall --no-deps {name}; where both are still there, remove "
                        f"the folder {name.replace('-', '_')}-{min(seen)}.dist-info",
                    )
            for remains in sorted(folder.glob("~*")):
                yield self._note(
                    remains,
                    "a folder that pip moved away and did not remove",
                    "an update was interrupted, or a program had the files open",
                    f"remove {remains}",
                )


class PackageVariants(PackagesCheck):
    """Variants of a package, installed over each other."""

    name = "package-variants"
    title = "Several builds of one library are installed over each other"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for folder in self._folders:
            there = {name for name, _ in packages(folder)}
            for module, variants in _VARIANTS.items():
                found = [name for name in variants if name in there]
                if len(found) > 1:
                    yield self._broken(
                        folder / module,
                        f"{' and '.join(found)} are both installed",
                        f"each brings the module {module}: its files are a mix of theirs, and what is imported is "
                        "whichever was written last",
                        f"python -m pip uninstall -y {' '.join(found)}, then install the one you want: "
                        f"python -m pip install {found[0]}",
                    )


class PackageConflicts(PackagesCheck):
    """A package that another one does not work with."""

    name = "package-conflicts"
    title = "An installed package is not the version that another one needs"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        there = {name: found for folder in self._folders for name, found in packages(folder)}
        for owner, found in sorted(there.items()):
            for requirement in _requirements(found):
                needed = there.get(canonical(requirement.name))
                if needed and not requirement.specifier.contains(needed.version, prereleases=True):
                    yield self._risk(
                        owner,
                        f"{owner} {found.version} needs {requirement.name}{requirement.specifier}, and "
                        f"{needed.version} is installed",
                        "the packages were installed by several commands, and the last one won",
                        f'python -m pip install "{requirement.name}{requirement.specifier}", or an environment of its '
                        f"own for {owner}; keep what works with: python -m pip freeze > requirements.lock",
                    )


def _requirements(found: Distribution) -> Iterator[Requirement]:
    """What a package needs here, whatever extras were chosen."""
    for line in found.requires or ():
        try:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield requirement
        except (InvalidRequirement, ValueError, KeyError):
            continue  # older than the rules: pip ignores it as well
