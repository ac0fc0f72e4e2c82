"""The drivers of this machine: which are announced to the OpenCL loader, what each offers, and which one to use."""

import glob
import grp
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import vendorchoice  # noqa: E402  (found through the line above)

PUBLIC = "/etc/OpenCL/vendors"
OWN_LIBRARY = "libdivvy-opencl"
PROBE_S = 120   # the first use of a driver can be slow
NODES = ["/dev/dri", "/dev/kfd", "/dev/accel", "/dev/nvidia*"]
KNOWN_NODES = tuple(node.rstrip("*") for node in NODES)


class CannotRun(Exception):
    """What is missing, and what to do about it."""


@dataclass
class Vendor:
    name: str      # of its .icd file, without the ending
    library: str
    platforms: list
    problem: str = ""

    @property
    def devices(self):
        return [device for platform in self.platforms for device in platform["devices"]]

    def has(self, kind):
        return any(device["type"] == kind for device in self.devices)

    def line(self):
        shown = ", ".join(f"{device['name']} ({device['type']})" for device in self.devices)
        return f"{self.name}: {shown or 'no device: ' + (self.problem or 'it lists none')}"


def icd_files(place):
    """A value of OCL_ICD_VENDORS is a directory, an .icd file, or a library."""
    path = pathlib.Path(place)
    if path.is_dir():
        return sorted(path.glob("*.icd"))
    return [path]


def read_library(path):
    """The library that an .icd file names."""
    if path.suffix != ".icd":
        return str(path)
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[0].strip() if lines else ""


def announced():
    """(name, library) of each driver, without divvy's own."""
    found = {}
    for place in [os.environ.get("OCL_ICD_VENDORS"), PUBLIC]:
        for path in icd_files(place) if place else []:
            library = read_library(path)
            if library and OWN_LIBRARY not in library and library not in found.values():
                name = path.stem
                while name in found:
                    name += "-2"
                found[name] = library
    return list(found.items())


def write_directory(place, name, library):
    """A directory for the loader and for divvyd that announces one driver."""
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)   # tenants are other users
    (place / f"{name}.icd").write_text(library + "\n")
    return place


def probe_environment(directory=None):
    """Without what would lead a program to another driver."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(("DIVVY_", "OCL_ICD_", "OPENCL_")) or key == vendorchoice.SCRIPT}
    if directory:
        env["OCL_ICD_VENDORS"] = str(directory)
    return env


def see(command, env):
    """What a program sees that is started so. (platforms, problem)"""
    try:
        done = subprocess.run([*command, sys.executable, str(HERE / "opencl.py")], env=env, capture_output=True,
                              text=True, timeout=PROBE_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return [], f"it did not answer within {PROBE_S} s"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return [], said[-1] if said else f"exit code {done.returncode}"
    return json.loads(done.stdout or "[]"), ""


def find(work):
    """All drivers of the machine, each asked in a process of its own."""
    found = []
    for number, (name, library) in enumerate(announced()):
        directory = write_directory(work / f"probe-{number}", name, library)
        platforms, problem = see([], probe_environment(directory))
        found.append(Vendor(name, library, platforms, problem))
    return found


def choose(found, wanted):
    """The driver to use, and a sentence that says why. wanted: a part of its name or of a device's, or None."""
    usable = [vendor for vendor in found if vendor.devices]
    if wanted:
        fitting = [v for v in usable if wanted.lower() in (v.name + " " + v.library).lower()
                   or any(wanted.lower() in device["name"].lower() for device in v.devices)]
        if not fitting:
            raise CannotRun(f"no driver with a device is called '{wanted}'; there are: "
                            + ("; ".join(vendor.line() for vendor in found) or "none"))
        return fitting[0], f"chosen with --vendor {wanted}"
    if not usable:
        raise CannotRun(f"no OpenCL driver with a device is announced in {PUBLIC} or by OCL_ICD_VENDORS; "
                        "install the driver of the card" + "".join(f"\n  {vendor.line()}" for vendor in found))
    for kind, why in (("GPU", "the first driver that has a GPU"),
                      ("accelerator", "no driver has a GPU; this is the first with an accelerator")):
        for vendor in usable:
            if vendor.has(kind):
                return vendor, why
    return usable[0], "no driver has a GPU or an accelerator; this is the first with any device"


# ---- device nodes ----

def device_nodes(vendor, given):
    """The nodes that workers need: those of the option, or all that are known of cards."""
    if given:
        return given
    if all(device["type"] == "CPU" for device in vendor.devices):
        return []
    return sorted(path for pattern in NODES for path in glob.glob(pattern))


def group_names(nodes):
    """Groups that open these nodes, or what is in them. Root's are left out."""
    paths = [path for node in nodes for path in [node, *glob.glob(node + "/*")]]
    numbers = {os.stat(path).st_gid for path in paths if os.path.exists(path)} - {0}
    names = []
    for number in sorted(numbers):
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            names.append(str(number))
    return names


def sandbox(nodes):
    """The `sandbox` of a device rule, in YAML's flow style; None: nothing is needed."""
    if not nodes:
        return None
    parts = ["paths: [%s]" % ", ".join(nodes)]
    groups = group_names(nodes) if os.geteuid() == 0 else []   # a user's own workers have the user's groups
    if groups:
        parts.append("groups: [%s]" % ", ".join(groups[:8]))
    if any(node.startswith("/dev/") and not node.startswith(KNOWN_NODES) for node in nodes):
        parts.append("ioctls: [all]")
    return "{%s}" % ", ".join(parts)
