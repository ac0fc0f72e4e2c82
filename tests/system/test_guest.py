"""The library as a guest in an application's process: what the program does to itself, and what the library must
leave alone."""

import subprocess

import pytest

import divvytest


def run(daemon, command, **kwargs):
    done = daemon.run(command, timeout=120, **kwargs)
    assert done.returncode == 0, "code %d\n%s%s" % (done.returncode, done.stdout, done.stderr)
    return done


def test_fork(daemon, program):
    before = divvytest.Leftovers(daemon)
    run(daemon, [program("forks")])
    before.assert_gone()


@pytest.mark.parametrize("mode", ["close", "reuse"])
def test_closed_descriptors(daemon, program, mode):
    before = divvytest.Leftovers(daemon)
    run(daemon, [program("descriptors"), mode])
    before.assert_gone()


def test_no_descriptor_across_exec(daemon, program):
    """Neither descriptors nor the session outlive exec; the new program may start its own."""
    before = divvytest.Leftovers(daemon)
    run(daemon, [program("descriptors"), "exec"])
    before.assert_gone()


# Lines of 67 bytes: more than pipes and the ring hold, and less than the 16 MiB that PoCL keeps for a thread. PoCL
# drops what a thread prints beyond them, and one thread may run nearly all work-groups.
PRINTED_LINES = 200000


def test_what_a_kernel_prints_is_taken_while_the_library_waits_for_the_device(program):
    """A read for the program waits for the kernel, and the kernel waits until its output is taken."""
    with divvytest.Daemon(divvytest.DATA_PATHS["discrete"]) as daemon:
        done = run(daemon, [program("chatter"), str(PRINTED_LINES)])
    # the driver's threads write in pieces, so that lines can be torn
    assert done.stdout.count("\n") == PRINTED_LINES + 1 and "chatter: 19 checks, 0 failed" in done.stdout[-100:]


@pytest.mark.parametrize("path", list(divvytest.DATA_PATHS))
def test_output_that_nobody_reads_keeps_no_device(program, path):
    """The kernel ends and gives the device back. The program waits until its output is taken, and loses none."""
    with divvytest.Daemon(divvytest.DATA_PATHS[path]) as daemon:
        run(daemon, [program("compute"), "1", "0"])   # compiles
        chatter = daemon.popen([program("chatter"), str(PRINTED_LINES)], stdout=subprocess.PIPE)
        try:
            divvytest.wait_for(lambda: daemon.session_of(chatter.pid)["commands"] >= 1, 30, "it does nothing")
            run(daemon, [program("compute"), "3", "0"])
            assert chatter.poll() is None
            out, _ = chatter.communicate(timeout=100)
            assert chatter.returncode == 0 and out.count("\n") == PRINTED_LINES + 1
        finally:
            divvytest.kill_group(chatter)


def test_unload(daemon, program):
    before = divvytest.Leftovers(daemon)
    run(daemon, [program("unload")])
    before.assert_gone()


def test_signals(daemon, program):
    run(daemon, [program("manners"), "signals"])


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "de_DE.UTF-8"])
def test_state_of_the_process(daemon, program, locale):
    run(daemon, [program("manners"), "state"], env={"LC_ALL": locale})


def test_prints_nothing(daemon, program):
    done = run(daemon, [program("compute"), "3", "0"])
    assert done.stdout == "ready\ndone 1\n"
    assert done.stderr == ""


def test_prints_nothing_without_daemon(program, tmp_path):
    """The library alone, with no daemon to reach: no output, no crash, a plain error code."""
    vendor = tmp_path / "vendors"
    vendor.mkdir()
    (vendor / "divvy.icd").write_text(divvytest.binary("libdivvy-opencl.so") + "\n")
    env = divvytest.bare_env()
    env.update(OCL_ICD_VENDORS=str(vendor), DIVVY_DIR=str(tmp_path / "nothing"))
    done = subprocess.run([program("compute"), "1", "0"], env=env, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 3
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("opencl error"), done.stderr


def test_exit_code_is_the_programs(daemon):
    assert daemon.run(["sh", "-c", "exit 37"]).returncode == 37
    assert daemon.run(["sh", "-c", "kill -TERM $$"]).returncode == -15
    missing = daemon.run(["/no/such/program"])
    assert missing.returncode == 127
    assert "/no/such/program" in missing.stderr


def test_standard_streams_are_the_programs(daemon):
    done = daemon.run(["sh", "-c", "cat; echo to-stderr >&2"], input="from stdin\n")
    assert done.stdout == "from stdin\n"
    assert done.stderr == "to-stderr\n"


def test_present_as(daemon):
    plain = daemon.run(["clinfo", "--raw"])
    assert plain.returncode == 0
    as_gpu = daemon.run(["clinfo", "--raw"], present_as="gpu")
    assert as_gpu.returncode == 0
    types = [[line.split()[-1] for line in done.stdout.splitlines()
              if line.split()[1:2] == ["CL_DEVICE_TYPE"]] for done in (plain, as_gpu)]
    assert types[0] == ["CL_DEVICE_TYPE_CPU"]
    assert types[1] == ["CL_DEVICE_TYPE_GPU"]
