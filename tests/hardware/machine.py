"""What a report says about the machine, the driver and the device."""

import grp
import json
import os
import pathlib
import platform
import re
import shutil
import stat
import subprocess

MIB = 1 << 20
KERNEL_DRIVERS = ["nvidia", "amdgpu", "i915", "xe", "amdkfd"]


def read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def said(*command, cwd=None):
    """The first line that a command prints; empty if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def first_match(pattern, text):
    found = re.search(pattern, text, re.M)
    return found[1].strip().strip('"') if found else "unknown"


def package_of(path):
    """The package that a file is from, with its version."""
    real = os.path.realpath(path)
    for name in dict.fromkeys([path, real]):
        if shutil.which("dpkg-query"):
            owner = said("dpkg-query", "-S", name).split(":")[0]
            version = said("dpkg-query", "-W", "-f", "${Version}", owner) if owner else ""
            if version:
                return f"{owner} {version}"
        elif shutil.which("rpm"):
            owner = said("rpm", "-qf", name)
            if owner and "not owned" not in owner:
                return owner
    return "of no package"


def library_package(name):
    """The package of a library, which is named by its path or as the linker finds it."""
    if os.path.isabs(name):
        return package_of(name)
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    for path in (line.split("=>")[-1].strip() for line in cache.splitlines() if "=>" in line):
        if name in (os.path.basename(path), os.path.basename(os.path.realpath(path))):
            return package_of(path)
    return "unknown"


def describe_machine():
    processor = first_match(r"^model name\s*: (.*)$", read("/proc/cpuinfo"))
    memory = first_match(r"^MemTotal: *([0-9]+)", read("/proc/meminfo"))
    cgroups = "version 2" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "version 1"
    return [
        ("processor", f"{processor}, {os.cpu_count()} cores"),
        ("memory", f"{int(memory) // 1024} MiB" if memory.isdigit() else memory),
        ("system", first_match(r"^PRETTY_NAME=(.*)$", read("/etc/os-release"))),
        ("kernel", f"{platform.release()} {platform.machine()}"),
        ("cgroups", cgroups),
        ("run as", "root" if os.geteuid() == 0 else "an ordinary user"),
    ]


def describe_divvy(source, build):
    options = {}
    try:
        for option in json.loads(read(build / "meson-info" / "intro-buildoptions.json")):
            options[option["name"]] = option["value"]
    except ValueError:
        pass
    commit = said("git", "rev-parse", "--short=12", "HEAD", cwd=source)
    changed = said("git", "status", "--porcelain", "--untracked-files=no", cwd=source)
    return [
        ("version", said(str(build / "src" / "cli" / "divvy"), "--version") or "unknown"),
        ("commit", (commit or "unknown") + (", with changes" if changed else "")),
        ("build", f"{options.get('buildtype', 'unknown')}, sanitizers: {options.get('b_sanitize', 'unknown')}"),
    ]


def describe_driver(vendor):
    rows = [("announced as", f"{vendor.name}.icd"), ("library", vendor.library),
            ("package", library_package(vendor.library)), ("loader", library_package("libOpenCL.so.1"))]
    for name in KERNEL_DRIVERS:
        if os.path.isdir(f"/sys/module/{name}"):
            rows.append((f"kernel driver {name}", read(f"/sys/module/{name}/version") or "of this kernel"))
    rows += [("platform", f"{p['name']}, {p['vendor']}, {p['version']}") for p in vendor.platforms]
    return rows


def describe_device(device):
    return [
        ("name", device["name"]),
        ("type", device["type"]),
        ("vendor", device["vendor"]),
        ("driver", device["driver"]),
        ("OpenCL", f"{device['version']}; {device['c_version']}"),
        ("compute units", f"{device['compute_units']}, {device['clock_mhz']} MHz"),
        ("memory", f"{device['memory_bytes'] // MIB} MiB, at most {device['allocation_bytes'] // MIB} MiB at once, "
                   f"local {device['local_bytes'] // 1024} KiB"),
        ("memory is the host's", "yes" if device["unified"] else "no"),
        ("work-group", f"at most {device['work_group_items']} items"),
        ("timer", f"{device['timer_ns']} ns"),
        ("extensions", " ".join(device["extensions"].split())),
    ]


def describe_node(path):
    """Kind, mode and group of a device node, and of those in a directory of them."""
    lines = []
    for name in [path, *sorted(str(p) for p in pathlib.Path(path).glob("*"))]:
        try:
            facts = os.stat(name)
        except OSError as problem:
            lines.append(f"{name}: {problem.strerror}")
            continue
        try:
            group = grp.getgrgid(facts.st_gid).gr_name
        except KeyError:
            group = str(facts.st_gid)
        can = "this user opens it" if os.access(name, os.R_OK | os.W_OK) else "this user cannot open it"
        lines.append(f"{name}: {stat.filemode(facts.st_mode)} group {group}"
                     + ("" if stat.S_ISDIR(facts.st_mode) else f", {can}"))
    return lines
