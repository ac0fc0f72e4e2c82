"""The real programs that the whole-system tests and the overhead bench run.

Each entry of PROGRAMS says how one unmodified program is run, which part of what it leaves
behind can be compared between two runs, and what must hold of that on its own. Nothing here
knows about divvy: the caller decides whether a command runs bare or under `divvy run`.

A run is made of
    work     a directory for the inputs and outputs of one run
    home     a directory that outlives runs: the program's own caches (HOME, XDG_CACHE_HOME)
    command  program.command(work, long)    writes the inputs, returns the argument list
    env      program.environment(work, home, bare); for divvyd: program.device_environment()
    result   program.output(work, completed_process)    a dict of comparable values
    checks   program.verify(result, long), then program.compare(reference, result)
"""

import array
import hashlib
import json
import math
import os
import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "programs"
PYTHON = "/usr/bin/python3"


def cache_dir():
    """Directory that outlives test runs: PoCL's kernel cache, built programs, program caches."""
    default = Path(tempfile.gettempdir()) / f"divvy-apps-cache-{os.getuid()}"
    path = Path(os.environ.get("DIVVY_TEST_CACHE", default))
    path.mkdir(parents=True, exist_ok=True)
    return path


def build_dir():
    return cache_dir() / "bin"


def build(*targets):
    """Build our own small programs and the bare run's layer; make does nothing if up to date."""
    subprocess.run(
        ["make", "-s", "-C", str(SOURCES), f"OUT={build_dir()}",
         *(str(build_dir() / target) for target in targets)],
        check=True, timeout=900, stdin=subprocess.DEVNULL)


@dataclass(frozen=True)
class Program:
    name: str
    # Debian packages that must be installed, beside pocl-opencl-icd.
    packages: tuple
    # (work, long) -> argument list; writes input files into work.
    command: Callable
    # (work, completed process) -> dict of values to compare between runs.
    output: Callable
    # (result, long) -> None, raises AssertionError if the result is wrong in itself.
    verify: Callable
    env: dict = field(default_factory=dict)
    # What the device must be like for this program to be comparable (PoCL's variables).
    device: dict = field(default_factory=dict)
    # "gpu" for programs that look for nothing but GPUs.
    present_as: str = None
    # Relative tolerance of numbers and arrays of numbers by key; every other key must be equal.
    tolerance: dict = field(default_factory=dict)
    # True if every run launches the same number of kernels.
    same_launches: bool = True
    # Names in our own Makefile that must be built before.
    builds: tuple = ()
    # Seconds for a run with a cold kernel cache on a slow machine.
    timeout: int = 600
    # False where a run is too short, or depends too much on chance, for an overhead figure.
    bench: bool = True

    def missing_packages(self):
        """Packages that are not installed, so that a caller can name them."""
        query = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *self.packages],
            capture_output=True, text=True, timeout=60)
        installed = {line.split()[0] for line in query.stdout.splitlines()
                     if line.endswith(" installed")}
        return [package for package in self.packages if package not in installed]

    def prepare(self):
        """Build what this program needs, for bare runs and others alike."""
        build("libbare-layer.so", *self.builds)

    def device_environment(self):
        """What a bare run and divvyd must share so that both see the same warm device."""
        pocl_cache = cache_dir() / "pocl"
        pocl_cache.mkdir(exist_ok=True)
        return {
            "POCL_CACHE_DIR": str(pocl_cache),
            "DIVVY_CACHE": str(pocl_cache / "divvy"),
            "POCL_MEMORY_LIMIT": os.environ.get("POCL_MEMORY_LIMIT", "4"),
            **self.device,
        }

    def environment(self, work, home, bare, launch_count=None, base=None):
        """The whole environment of a run.

        bare: the program sees the device itself; a layer then answers what --present-as would,
        and counts kernel launches into the file launch_count, if one is given. Under divvy the
        device's variables belong to divvyd's environment instead (device_environment).
        """
        home = Path(home)
        for folder in ("cache", "data", "config"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        env = dict(os.environ if base is None else base)
        if bare:
            env.update(self.device_environment())
        env.update({
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(work),
        })
        env.update(self.env)
        if bare and (self.present_as or launch_count):
            env["OPENCL_LAYERS"] = str(build_dir() / "libbare-layer.so")
            if self.present_as:
                env["BARE_LAYER_PRESENT_AS"] = self.present_as
            if launch_count:
                env["BARE_LAYER_COUNT"] = str(launch_count)
        return env

    def compare(self, reference, result):
        """Raise AssertionError if result is not what the reference run gave."""
        compare_results(reference, result, self.tolerance)


def compare_results(reference, result, tolerance):
    assert sorted(reference) == sorted(result), "runs left different kinds of output"
    for key, expected in reference.items():
        if key in tolerance:
            assert_close(key, expected, result[key], tolerance[key])
        else:
            assert result[key] == expected, \
                f"{key} differs: {shortened(expected)} became {shortened(result[key])}"


def shortened(value, limit=300):
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def assert_close(key, expected, actual, tolerance):
    """Numbers may differ by tolerance times the largest magnitude in the reference."""
    expected = [expected] if isinstance(expected, (int, float)) else list(expected)
    actual = [actual] if isinstance(actual, (int, float)) else list(actual)
    assert len(expected) == len(actual), f"{key}: {len(expected)} numbers became {len(actual)}"
    allowed = tolerance * max(map(abs, expected), default=0.0)
    for index, (want, have) in enumerate(zip(expected, actual)):
        assert math.isfinite(have) and abs(want - have) <= allowed, \
            f"{key}[{index}]: {want} became {have}, allowed difference {allowed}"


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def floats(path):
    return array.array("f", Path(path).read_bytes())


def all_output(done):
    return done.stdout + done.stderr


def without_colours(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


# ---------------------------------------------------------------------------------- hashcat

HASHCAT_WORDS = ["abc12", "kqz07", "pwd99"]


def hashcat_command(work, long):
    words = [word[:3] + "xy" + word[3:] for word in HASHCAT_WORDS] if long else HASHCAT_WORDS
    digests = [hashlib.md5(word.encode()).hexdigest() for word in words]
    (work / "hashes.txt").write_text("\n".join(digests) + "\n")
    mask = "?l?l?l?l?l?d?d" if long else "?l?l?l?d?d"
    return ["hashcat", "-m", "0", "-a", "3", "hashes.txt", mask, "--potfile-disable",
            "--self-test-disable", "--outfile", "cracked.txt", "--outfile-format", "2"]


def hashcat_output(work, done):
    return {"cracked": sorted((work / "cracked.txt").read_text().split())}


def hashcat_verify(result, long):
    assert len(result["cracked"]) == len(HASHCAT_WORDS), result
    if not long:
        assert result["cracked"] == sorted(HASHCAT_WORDS), result


# ----------------------------------------------------------------------------------- clpeak

def clpeak_command(work, long):
    return ["clpeak"] if long else ["clpeak", "--kernel-latency"]


def clpeak_output(work, done):
    """Its figures differ from run to run by nature; which ones it could measure does not."""
    measured = re.findall(r"^\s+(\S.*?)\s*: ([0-9.]+|inf)(?: us)?$", done.stdout, re.MULTILINE)
    facts = ("Clock frequency", "Compute units")
    measured = [(name, float(figure)) for name, figure in measured if name not in facts]
    return {
        "measured": [name for name, figure in measured],
        # It counts whole microseconds: what takes less than one gives infinite bandwidth.
        "usable figures": [figure > 0 for name, figure in measured],
        "compute units": re.findall(r"Compute units\s*: (\d+)", done.stdout),
    }


def clpeak_verify(result, long):
    assert "Kernel launch latency" in result["measured"], result
    assert len(result["measured"]) >= (20 if long else 1), result
    assert all(result["usable figures"]), result


# ---------------------------------------------------------------------------------- CLBlast

def clblast_test(routine):
    def command(work, long):
        return [f"clblast_test_{routine}", "-precision", "32"] + (["-full_test"] if long else [])
    return command


def clblast_test_output(work, done):
    text = without_colours(all_output(done))
    return {
        kind: [int(n) for n in re.findall(rf"(\d+) test\(s\) {kind}", text)]
        for kind in ("passed", "skipped", "failed")
    }


def clblast_test_verify(result, long):
    assert sum(result["passed"]) > 0, result
    assert sum(result["failed"]) == 0, result


def clblast_tuner_command(work, long):
    # The largest variant handles 2048 * 8 * 8 numbers a work-group; with fewer it overruns.
    size = "4194304" if long else "131072"
    runs = "10" if long else "2"
    return ["clblast_tuner_xaxpy", "-precision", "32", "-n", size, "-runs", runs]


def clblast_tuner_output(work, done):
    """Which variant is fastest is chance; that each was built, ran and gave the right numbers
    is not. The tuner drops from its JSON those that did not."""
    text = without_colours(all_output(done))
    tuned = json.loads((work / "clblast_xaxpy_32.json").read_text())
    return {
        "variants": sorted(json.dumps(r["parameters"], sort_keys=True) for r in tuned["results"]),
        "matching": text.count("results match"),
        "not matching": len(re.findall(r"L2 error|error code|compilation error", text)),
        "precision": tuned["precision"],
    }


def clblast_tuner_verify(result, long):
    assert len(result["variants"]) == 96, result
    assert result["matching"] == 96, result
    assert result["not matching"] == 0, result


# ------------------------------------------------------------------------------------ clFFT

def clfft_command(work, long):
    # One timed pass is the form in which the client checks the numbers that come back.
    side = "1024" if long else "256"
    return ["clFFT-client", "-x", side, "-y", side, "-b", "4", "-p", "1"]


def clfft_output(work, done):
    text = all_output(done)
    return {"passed": text.count("*****PASS*****"), "failed": text.count("*****FAIL*****")}


def clfft_verify(result, long):
    assert result == {"passed": 1, "failed": 0}, result


# --------------------------------------------------- Python programs that write one JSON file

def python_command(script, *, size, long_size):
    def command(work, long):
        return [PYTHON, str(SOURCES / script), "result.json", str(long_size if long else size)]
    return command


def json_output(work, done):
    return json.loads((work / "result.json").read_text())


def self_checked_verify(result, long):
    """The program compared the device's numbers with numbers it got without the device."""
    assert result["matches host"] is True, result
    assert result["device"], result


# ----------------------------------------------------------------------------------- ffmpeg

def ffmpeg_command(work, long):
    size, seconds = ("1280x720", "3") if long else ("320x240", "1")
    filters = ("format=yuv420p,hwupload,avgblur_opencl=sizeX=3,unsharp_opencl=lx=5:ly=5:la=1.5,"
               "sobel_opencl,hwdownload,format=yuv420p")
    return ["ffmpeg", "-nostdin", "-hide_banner", "-v", "verbose", "-y",
            "-f", "lavfi", "-i", f"testsrc2=size={size}:rate=25:duration={seconds}",
            "-init_hw_device", "opencl=ocl:0.0", "-filter_hw_device", "ocl",
            "-vf", filters, "-f", "framemd5", "frames.md5"]


def ffmpeg_output(work, done):
    lines = (work / "frames.md5").read_text().splitlines()
    return {"frames": [line.split()[-1] for line in lines if not line.startswith("#")]}


def ffmpeg_verify(result, long):
    # The test source never shows the same picture twice.
    assert len(set(result["frames"])) == (75 if long else 25), result


# ------------------------------------------------------------------------------------- x264

X264_FRAMES = 24


def x264_command(work, long):
    """Raw frames: a gradient with a bright square that moves over it."""
    width, height = (640, 480) if long else (320, 240)
    frames = X264_FRAMES * (4 if long else 1)
    chroma = bytes([128]) * (width * height // 2)
    ramps = [bytes((x * 3 + start) & 0x7f for x in range(width)) for start in range(128)]
    with open(work / "in.yuv", "wb") as out:
        for frame in range(frames):
            rows = [bytearray(ramps[(y * 2 + frame) & 0x7f]) for y in range(height)]
            left, top = (frame * 7) % (width - 48), (frame * 5) % (height - 48)
            for y in range(top, top + 48):
                rows[y][left:left + 48] = bytes([220]) * 48
            out.write(b"".join(rows) + chroma)
    return ["x264", "--opencl", "--no-progress", "--opencl-clbin", "lookahead.clbin",
            "--threads", "2", "--crf", "24", "--psnr",
            "--demuxer", "raw", "--input-res", f"{width}x{height}", "--fps", "25",
            "-o", "out.264", "in.yuv"]


def x264_output(work, done):
    text = all_output(done)
    psnr = re.search(r"PSNR Mean Y:\s*([0-9.]+)", text)
    return {
        "bitstream": sha256(work / "out.264"),
        "bytes": (work / "out.264").stat().st_size,
        "opencl enabled": "OpenCL acceleration enabled with" in text,
        "luma psnr": float(psnr.group(1)) if psnr else 0.0,
    }


def x264_verify(result, long):
    assert result["opencl enabled"], "x264 fell back to its own lookahead"
    assert result["bytes"] > 1000, result
    assert result["luma psnr"] > 30, result


# -------------------------------------------------------------------------------------- UFO

def ufo_size(long):
    return (1024, 20) if long else (256, 4)


def ufo_wave(x, y):
    return math.sin(0.05 * x) * math.cos(0.03 * y)


def ufo_command(work, long):
    side, count = ufo_size(long)
    pixels = struct.pack(f"<{side * side}f",
                         *(ufo_wave(i % side, i // side) for i in range(side * side)))
    (work / "in").mkdir(exist_ok=True)
    for index in range(count):
        (work / "in" / f"{index:03}.raw").write_bytes(pixels)
    return ["ufo-launch", "-q",
            "read", f"path={work}/in/*.raw", f"raw-width={side}", f"raw-height={side}",
            "raw-bitdepth=32",
            "!", "blur", "size=10", "sigma=2", "!", "fft", "dimensions=2",
            "!", "ifft", "dimensions=2", "!", "write", f"filename={work}/out.raw"]


def ufo_output(work, done):
    pixels = floats(work / "out.raw")
    side = 1024 if len(pixels) >= 1024 * 1024 else 256
    return {
        "pixels": sha256(work / "out.raw"),
        "count": len(pixels),
        "diagonal of the first": [pixels[at * (side + 1)] for at in range(20, side - 20, 10)],
    }


def ufo_verify(result, long):
    side, count = ufo_size(long)
    assert result["count"] == side * side * count, result
    # A narrow blur of a slow wave keeps the wave; the two transforms together only scale it.
    for at, have in zip(range(20, side - 20, 10), result["diagonal of the first"]):
        want = ufo_wave(at, at) / (side * side)
        assert abs(have - want) < 0.1 / (side * side), (at, have, want)


# ----------------------------------------------------------------------------------- StarPU

STARPU_EXAMPLES = "/usr/lib/x86_64-linux-gnu/starpu/examples"

STARPU_ENV = {
    "STARPU_NCPU": "0",
    "STARPU_NOPENCL": "1",
    "STARPU_OPENCL_ON_CPUS": "1",
    "STARPU_OPENCL_ONLY_ON_CPUS": "1",
    "STARPU_OPENCL_PROGRAM_DIR": "/usr/share/starpu/opencl",
    "STARPU_SILENT": "1",
}


def starpu_command(example):
    return lambda work, long: [f"{STARPU_EXAMPLES}/{example}"]


def starpu_output(work, done):
    """All it prints but how long it took."""
    lines = [line for line in all_output(done).splitlines()
             if line.strip() and " took " not in line and not line.startswith("[starpu]")]
    return {"printed": lines}


def starpu_verify(evidence):
    def verify(result, long):
        assert any(evidence in line for line in result["printed"]), result
    return verify


# ------------------------------------------------------- our own programs on C++ libraries

def own_command(binary, *, size, long_size):
    def command(work, long):
        return [str(build_dir() / binary), "result.bin", str(long_size if long else size)]
    return command


def own_output(work, done):
    """Facts it prints as `name: value`, and the numbers it wrote."""
    facts = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    return {
        "device": facts["device"],
        "matches host": facts["matches host"] == "yes",
        "numbers": floats(work / "result.bin"),
    }


PROGRAMS = [
    Program(
        name="hashcat", packages=("hashcat",), command=hashcat_command, output=hashcat_output,
        verify=hashcat_verify,
        # It tunes itself by time and so cuts the search into launches differently each time.
        same_launches=False),
    Program(
        name="clpeak", packages=("clpeak",), command=clpeak_command, output=clpeak_output,
        verify=clpeak_verify),
    *(Program(
        name=f"clblast-test-{routine}", packages=("clblast-tests",),
        command=clblast_test(routine), output=clblast_test_output, verify=clblast_test_verify,
        timeout=1800)
      for routine in ("xaxpy", "xdot", "xgemv", "xtrsv")),
    Program(
        name="clblast-tuner", packages=("clblast-utils",), command=clblast_tuner_command,
        output=clblast_tuner_output, verify=clblast_tuner_verify),
    Program(
        name="clfft", packages=("clfft-client",), command=clfft_command, output=clfft_output,
        verify=clfft_verify),
    Program(
        name="pyopencl", packages=("python3-pyopencl", "python3-numpy"),
        command=python_command("pyopencl_algorithms.py", size=100_003, long_size=10_000_019),
        output=json_output, verify=self_checked_verify),
    Program(
        name="opencv", packages=("python3-opencv",),
        command=python_command("opencv_umat.py", size=320, long_size=1920),
        output=json_output, verify=self_checked_verify, present_as="gpu"),
    Program(
        name="ffmpeg", packages=("ffmpeg",), command=ffmpeg_command, output=ffmpeg_output,
        verify=ffmpeg_verify),
    Program(
        name="x264", packages=("x264",), command=x264_command, output=x264_output,
        verify=x264_verify, present_as="gpu",
        # Its motion search reads neighbours' vectors while others write them: with two compute
        # units no two runs give the same bitstream, with one all do.
        device={"POCL_MAX_PTHREAD_COUNT": "1"}),
    Program(
        name="openmm", packages=("python3-simtk", "libopenmm-plugins"),
        command=python_command("openmm_forces.py", size=8, long_size=20),
        output=json_output, verify=self_checked_verify,
        tolerance={"energies": 1e-4, "forces": 1e-4, "positions": 1e-4}),
    Program(
        name="ufo", packages=("libufo-bin", "ufo-filters"), command=ufo_command,
        output=ufo_output, verify=ufo_verify, present_as="gpu"),
    *(Program(
        name=f"starpu-{example}", packages=("starpu-examples",), env=STARPU_ENV,
        command=starpu_command(example), output=starpu_output, verify=starpu_verify(evidence),
        same_launches=False, bench=False)
      for example, evidence in (("matvecmult", "TEST PASSED"), ("block", "TEST PASSED"),
                                ("variable", "result is correct"), ("incrementer", "array -> "))),
    Program(
        name="boost-compute", packages=("libboost-dev", "g++"),
        command=own_command("boost-compute", size=50_000, long_size=4_000_000),
        output=own_output, verify=self_checked_verify, builds=("boost-compute",)),
    Program(
        name="viennacl", packages=("libviennacl-dev", "g++"),
        command=own_command("viennacl", size=96, long_size=512),
        output=own_output, verify=self_checked_verify, builds=("viennacl",)),
    Program(
        name="vkfft", packages=("libvkfft-dev", "g++"),
        command=own_command("vkfft", size=128, long_size=1024),
        output=own_output, verify=self_checked_verify, builds=("vkfft",)),
]

BY_NAME = {program.name: program for program in PROGRAMS}
