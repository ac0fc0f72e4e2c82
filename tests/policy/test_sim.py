#!/usr/bin/python3
"""divvy-sim by its command line: what workload files can say, and what is reported of them.

usage: test_sim.py DIVVY-SIM EXAMPLES-DIRECTORY
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SIM, EXAMPLES = sys.argv[1], pathlib.Path(sys.argv[2])
TIMEOUT_S = 60
failures = []


def start(text, *options):
    """The finished process of divvy-sim with this workload; the suite must not hang with it."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return subprocess.run([SIM, *options, file.name], capture_output=True, text=True,
                              timeout=TIMEOUT_S)


def check(what, holds, detail=""):
    shown = str(detail)
    if holds and len(shown) > 100:
        shown = shown[:100] + " ..."
    print(f"{'ok' if holds else 'WRONG':5} {what}{': ' if shown else ''}{shown}")
    if not holds:
        failures.append(what)


def near(what, value, expected, tolerance):
    check(what, abs(value - expected) <= tolerance,
          f"{value:.3f}, expected {expected:g} within {tolerance:g}")


def rows_of(text):
    """The rows by tenant, each a dictionary by column."""
    lines = text.splitlines()
    rows = {}
    for line in lines[1:]:
        if line.startswith("kernels ran"):
            break
        name, kind, rest = line.split(maxsplit=2)
        if rest == "refused":
            rows[name] = {"class": kind, "refused": True}
            continue
        words = rest.replace("points", "").replace("/", " ").replace("%", "").split()
        numbers = [None if word == "-" else float(word) for word in words]
        columns = ("entitled", "share", "worst", "within", "wait_p50", "wait_p99", "latency_p50",
                   "latency_p99", "slices", "mean", "overuse", "kernels")
        if "IN SLA" in lines[0]:
            columns += ("sla", "in_sla")
        if "MOVED" in lines[0]:
            columns += ("moves", "moved", "lost")
        rows[name] = dict(zip(columns, numbers), **{"class": kind})
    return rows


def output(text, *options):
    done = start(text, *options)
    if done.returncode:
        sys.exit(f"divvy-sim failed: {done.stderr}{text}")
    return done.stdout


def run(text, *options):
    """The rows by tenant, and the part of the time in which kernels ran."""
    shown = output(text, *options)
    return rows_of(shown), float(re.search(r"kernels ran ([0-9.]+)%", shown).group(1))


def devices_of(shown):
    """The rows by device: tenants placed there, part of the time with kernels, and so on."""
    head, *lines = shown.split("\n\n")[1].splitlines()
    columns = head.lower().replace(" mib", "").split()
    return {line.split()[0]: dict(zip(columns, line.replace("%", "").split())) for line in lines}


def refuses(what, text, message):
    done = start(text)
    check(f"refuses {what}", done.returncode == 1 and message in done.stderr, done.stderr.strip())


# ---- it always ends ----

def ends_whatever_the_policy_does():
    """Two latency tenants of great weight beside a guarantee, and no overheads."""
    for policy in "elastic", "fair", "fifo", "band":
        done = start("duration: 5s\ndevices: [{name: gpu0}]\ntenants:\n"
                     "  - {name: L1, class: latency, weight: 10, kernel: 2ms}\n"
                     "  - {name: L2, class: latency, weight: 10, kernel: 2ms}\n"
                     "  - {name: G, request: 50%, kernel: 2ms}\n", "--policy", policy)
        at_fault = done.returncode == 1 and f"policy '{policy}' on device 'gpu0'" in done.stderr
        check(f"{policy}: ends, or says why not", done.returncode == 0 or at_fault,
              done.stderr.strip())


# ---- work that comes ----

def one(tenant, duration="200s", more=""):
    return f"duration: {duration}\n{more}devices: [{{name: gpu0}}]\ntenants:\n  - {{{tenant}}}\n"


def longest_pause_s(text):
    """How long no tenant held the device, by the tenths of a second of the CSV."""
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as file:
        run(text, "--csv", file.name)
        held = [float(line.rsplit(",", 1)[1]) for line in file.readlines()[1:]]
    longest = pause = 0
    for time in held:
        pause = pause + 1 if time == 0 else 0
        longest = max(longest, pause)
    return longest / 10


def heavy_tails():
    """The load is that of the means; the tail is what other distributions do not have."""
    tame = "name: t, arrival: poisson, rate: 50, kernel: 4ms"
    wild = "name: t, arrival: pareto, mean: 20ms, shape: 1.5, kernel: 4ms"
    near("pareto arrivals: load of the mean", run(one(wild, "2000s"))[1], 20, 2)
    tame_pause, wild_pause = (longest_pause_s(one(t)) for t in (tame, wild))
    check("pareto arrivals pause for long", tame_pause < 0.5 and wild_pause > 1,
          f"{wild_pause:.1f} s against {tame_pause:.1f} s by Poisson")
    fixed = "name: t, arrival: poisson, rate: 5, burst: 20, kernel: 1ms"
    bursts = fixed + ", burst-sizes: pareto, burst-shape: 1.8"
    near("pareto bursts: load of the mean", run(one(bursts, "2000s"))[1], 10, 2)
    fixed_p99, wild_p99 = (run(one(t))[0]["t"]["latency_p99"] for t in (fixed, bursts))
    check("pareto bursts: long ones", wild_p99 > 2 * fixed_p99,
          f"p99 {wild_p99} ms against {fixed_p99} ms when fixed")
    most = run(one(bursts + ", burst-max: 30"))[0]["t"]["latency_p99"]
    check("burst-max bounds them", most < fixed_p99 * 2, f"p99 {most} ms")
    kernels = "name: t, arrival: periodic, period: 1s, kernel: 10ms, kernel-lengths: pareto"
    lengths = run(one(kernels + ", kernel-max: 100ms", "3600s"))[0]["t"]
    near("pareto kernels: median", lengths["latency_p50"], 10 / 3 * 2 ** (1 / 1.5), 0.5)
    near("pareto kernels: p99", lengths["latency_p99"], 10 / 3 * 100 ** (1 / 1.5), 15)
    for key in "shape", "kernel-shape", "burst-shape", "work-shape":
        refuses(f"{key} 1", one(f"name: t, kernel: 1ms, {key}: 1"), f"'{key}' cannot be 1")
    refuses("pareto without mean", one("name: t, kernel: 1ms, arrival: pareto"), "'mean'")


def jobs_that_end():
    """Tenants come one after the other, work for so long and leave."""
    jobs = "name: j, kernel: 10ms, work: 2s, copies: 50, join-every: 4s"
    rows, useful = run(one(jobs, "400s"))
    near("fifty jobs of 2 s in 400 s", useful, 100 * 50 * 2 / 400, 2)
    check("every job has run", len(rows) == 50, len(rows))
    rows, useful = run(one(jobs, "200s", "load: 0.5\n"))
    check("at half the load about half of them come", 15 <= len(rows) <= 35, len(rows))
    check("who never comes is not shown", len(run(one(jobs, "40s"))[0]) < 20)
    wild = run(one(jobs + ", work-lengths: pareto", "400s"))[0]
    times = sorted(row["slices"] * row["mean"] for row in wild.values())
    check("work by Pareto: most below the mean, a few above", times[len(times) // 2] < 1500 and
          times[-1] > 4000, f"median {times[len(times) // 2]:.0f} ms, most {times[-1]:.0f} ms")


def load_scales_what_arrives():
    for tenant in ("arrival: poisson, rate: 20", "arrival: periodic, period: 50ms",
                   "arrival: pareto, mean: 50ms, shape: 3",
                   "arrival: trace, trace: [" + ", ".join(f"{i * 50}ms" for i in range(1000)) + "]"):
        text = one(f"name: t, kernel: 5ms, {tenant}", "20s")
        near(f"twice the load, {tenant[:22]}", run("load: 2\n" + text)[1], 2 * run(text)[1], 2)
    refuses("load 0", "load: 0\n" + one("name: t, kernel: 1ms"), "'load' cannot be 0")


def classes():
    rows = run("duration: 1s\ngrant-overhead: 50us\ndevices: [{name: gpu0}]\ntenants:\n"
               "  - {name: a, class: latency, kernel: 1ms}\n  - {name: b, class: batch, kernel: 1ms}\n"
               "  - {name: c, kernel: 1ms}\n")[0]
    check("classes by word", [rows[name]["class"] for name in "abc"] ==
          ["latency", "batch", "standard"])
    rows = run("duration: 10s\ngrant-overhead: 50us\ndevices: [{name: gpu0}]\ntenants:\n"
               "  - {name: s, limit: 30%, kernel: 1ms}\n  - {name: i, class: idle, kernel: 1ms}\n")[0]
    near("idle work has what is left over", rows["i"]["share"], 70, 1)
    near("and the other has its limit", rows["s"]["share"], 30, 1)
    refuses("a class that is none", one("name: t, class: royal, kernel: 1ms"),
            "there is no class 'royal'")


# ---- promises ----

def promises():
    """A request counts as kept when it is over in time; one that waits for ever as broken."""
    def kept(tenant, duration="10s"):
        return run(one(f"name: t, arrival: periodic, {tenant}", duration))[0]["t"].get("in_sla")
    near("alone, 5 ms within 6 ms", kept("period: 10ms, kernel: 5ms, sla: 6ms"), 100, 0)
    near("alone, 5 ms within 4 ms", kept("period: 10ms, kernel: 5ms, sla: 4ms"), 0, 0)
    # The n-th waits (n - 1) x 10 ms for the others: two of a thousand are in time, and only 500 end.
    near("twice what the device can do", kept("period: 10ms, kernel: 20ms, sla: 30ms"), 0.2, 0.01)
    near("leaves with work undone", kept("period: 10ms, kernel: 20ms, sla: 30ms, leave: 5s"), 0.4,
         0.02)
    check("without a promise", kept("period: 10ms, kernel: 5ms, sla: 0") is None)


def over_load():
    example = str(EXAMPLES / "sla-load.yaml")
    text = subprocess.run([SIM, "--load", "0.5,1,1.5,2", example], capture_output=True, text=True,
                          check=True, timeout=TIMEOUT_S).stdout
    head, *lines = text.splitlines()
    check("a column for each promise", head.split()[3:] == ["IN", "SLA", "service"], head)
    rows = [[float(word) for word in line.replace("%", "").split()] for line in lines]
    check("a line for each load", [row[0] for row in rows] == [0.5, 1, 1.5, 2])
    check("all is that of the one", all(row[2] == row[3] for row in rows), rows)
    near("promises kept at load 0.5", rows[0][2], 100, 0.5)
    near("promises kept at load 1", rows[1][2], 100, 1)
    check("promises broken beyond the guarantee", rows[3][2] < 5, rows[3][2])
    for mix in "80-20", "50-50":
        text = subprocess.run([SIM, "--load", "0.5,1", str(EXAMPLES / f"datacentre-{mix}.yaml")],
                              capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
        for line in text.splitlines()[1:]:
            load, _, kept, *_ = line.replace("%", "").split()
            check(f"data centre {mix} at load {load}: promises kept", float(kept) >= 98, kept)
    done = subprocess.run([SIM, "--load", "1,x", example], capture_output=True, text=True)
    check("refuses a load that is no number", done.returncode == 2, done.stderr.strip())


# ---- several devices ----

def kernels_and_shares():
    """Each turn of 10 kernels of 1 ms costs 1 ms more in which no kernel runs."""
    rows = run("duration: 20s\ngrant-overhead: 600us\nrelease-overhead: 400us\n"
               "devices: [{name: gpu0, slice: 10500us}]\n"
               "tenants:\n  - {name: t, copies: 2, kernel: 1ms}\n")[0]
    near("share: with hand-overs", rows["t-1"]["share"], 50, 0.5)
    near("kernels: without", rows["t-1"]["kernels"], 50 * 9 / 10, 1)


def overheads_that_vary():
    """The mean stays; a hand-over that is short now and then lets turns be short."""
    def runs(jitter):
        return run("duration: 20s\ngrant-overhead: 600us\nrelease-overhead: 400us\n"
                   f"overhead-jitter: {jitter}%\ndevices: [{{name: gpu0}}]\n"
                   "tenants:\n  - {name: t, copies: 2, kernel: 1ms}\n")[0]["t-1"]
    steady, varied = runs(0), runs(100)
    check("varied overheads: shorter turns", varied["mean"] < steady["mean"] - 5,
          f"{varied['mean']} ms, {steady['mean']} ms when steady")
    near("  the mean cost stays, ms a turn",
         varied["mean"] * (1 - varied["kernels"] / varied["share"]), 1, 0.1)


def several(tenants, order="free", devices="{name: gpu, copies: 4}", duration="10s"):
    return (f"duration: {duration}\ngrant-overhead: 30us\ndevice-order: {order}\n"
            f"devices: [{devices}]\ntenants:\n" + "".join(f"  - {{{t}}}\n" for t in tenants))


def placement():
    """What is left to one more session decides; a device is never promised more than once."""
    shown = output(several(["name: big, request: 60%, copies: 5, kernel: 2ms",
                            "name: small, copies: 8, kernel: 2ms"]))
    rows, devices = rows_of(shown), devices_of(shown)
    check("one guarantee of 60 % a device", [devices[f"gpu-{i}"]["tenants"] for i in (1, 2, 3, 4)] ==
          ["3"] * 4, devices)
    check("the fifth is refused", rows["big-5"].get("refused") is True)
    for i in range(1, 5):
        near(f"big-{i} has its guarantee on its own device", rows[f"big-{i}"]["share"], 60, 0.5)
        near(f"small-{i} has its part of the rest", rows[f"small-{i}"]["share"], 20, 0.5)
    for name, row in devices.items():
        check(f"{name} is busy", float(row["kernels"]) > 99, row["kernels"])
    first = devices_of(output(several(["name: big, request: 60%, copies: 3, kernel: 2ms",
                                       "name: small, copies: 8, kernel: 2ms"], "fixed")))
    check("fixed: where a guarantee fits, the others on the first device",
          [first[f"gpu-{i}"]["tenants"] for i in (1, 2, 3, 4)] == ["9", "1", "1", "0"], first)
    bound = devices_of(output(several(["name: a, device: gpu-3, copies: 2, kernel: 2ms",
                                       "name: b, device: gpu, copies: 2, kernel: 2ms",
                                       "name: c, device: other, kernel: 2ms"], "free",
                                      "{name: gpu, copies: 3}, {name: other, policy: fair}")))
    kinds = devices_of(output(several(["name: a, request: 60%, copies: 3, kernel: 2ms",
                                       "name: b, kernel: 2ms"], "free",
                                      "{name: gpu, copies: 2}, {name: slow}")))
    check("another kind only for what fits on none of the first",
          [row["tenants"] for row in kinds.values()] == ["2", "1", "1"], kinds)
    roomy = devices_of(output(several(["name: a, device: gpu-1, set: 95MiB, kernel: 2ms",
                                       "name: b, copies: 3, kernel: 2ms",
                                       "name: c, set: 20MiB, kernel: 2ms"], "free",
                                      "{name: gpu, copies: 2, memory: 100MiB}")))
    check("a device without memory left comes last",
          [row["tenants"] for row in roomy.values()] == ["1", "4"], roomy)
    check("bound to a device, to a kind, to another policy",
          [(row["tenants"], row["policy"]) for row in bound.values()] ==
          [("1", "elastic"), ("1", "elastic"), ("2", "elastic"), ("1", "fair")], bound)


def guarantees_come_back():
    """What one that leaves was promised can be promised again, at the same moment."""
    rows = rows_of(output(several(["name: late, request: 80%, copies: 2, join: 5s, kernel: 1ms",
                                   "name: early, request: 80%, copies: 2, leave: 5s, kernel: 1ms",
                                   "name: job, request: 10%, copies: 2, work: 100ms, kernel: 1ms"],
                                  devices="{name: gpu, copies: 2}")))
    check("room that was left is taken", not any(row.get("refused") for row in rows.values()), rows)
    near("as if it had always been alone", rows["late-1"]["share"], 100, 1)


def refuses_devices():
    refuses("a device that is none", several(["name: a, device: gpu-5, kernel: 1ms"]),
            "there is no device 'gpu-5'")
    refuses("too many devices", several(["name: a, kernel: 1ms"],
                                        devices="{name: a, copies: 64}, {name: b}"), "65 devices")
    refuses("too much promised on the one device",
            several(["name: a, request: 60%, copies: 2, kernel: 1ms"], devices="{name: gpu}"),
            "requests add up to 120.0%")


# ---- memory ----

# 20 MiB out and 20 MiB in at each change: 2 ms each way.
TIGHT = "{name: gpu0, memory: 100MiB, copy-speed: 10000MiB%s}"
PAIR = ["name: t, copies: 2, set: 60MiB, kernel: 1ms"]


def on_tight(tenants, more="", duration="20s", *options):
    shown = output(several(tenants, devices=TIGHT % more, duration=duration), *options)
    return rows_of(shown), devices_of(shown)["gpu0"]


def moves_take_time():
    rows, device = on_tight(["name: t, copies: 2, set: 40MiB, kernel: 1ms"])
    check("sets that fit move once", (device["moves"], float(device["moved"]), float(
        device["evicted"])) == ("2", 80.0, 0.0), device)
    near("for as long as the copy takes", rows["t-1"]["lost"], 4, 0.1)
    # The engine copies out and in at once, but the first piece has to leave before it can come.
    for engine, move_ms in ((", copy-engine: false", 4), (", copy-engine: true", 2.4)):
        rows, device = on_tight(PAIR, engine, "20s", "--slice", "20ms", "--policy", "fair")
        near(f"sets that do not fit, slices of 20 ms{engine}", float(device["lost"]),
             100 * move_ms / (20 + move_ms), 1)
        moves = int(device["moves"])
        near("  20 MiB a change", float(device["moved"]) / moves, 20, 0.5)
        near("  as many go as come", float(device["evicted"]), float(device["moved"]), 100)
    rows, device = on_tight(PAIR)
    check("elastic: who is there goes first, for a second", float(device["lost"]) < 1, device)
    near("  shares are kept", rows["t-1"]["share"], 50, 1)
    rows, device = on_tight(PAIR, "", "20s", "--policy", "fair")
    near("learned turns: 5 % for moves", float(device["lost"]), 5, 0.7)
    near("  turns of 20 moves", rows["t-1"]["mean"], 80, 6)
    near("  shares are kept", rows["t-1"]["share"], 50, 1)


def class_keeps_its_memory():
    """The set of an idle service stays while batch sets can go instead."""
    def moves(kind, policy="fair"):
        rows, _ = on_tight([f"name: service, {kind}set: 30MiB, arrival: periodic, period: 200ms, "
                            "kernel: 1ms", "name: b, class: batch, copies: 2, set: 50MiB, "
                            "kernel: 1ms"], "", "20s", "--policy", policy)
        return rows["service"]["moves"]
    near("latency service: moves once", moves("class: latency, "), 1, 0)
    check("batch service: moves again and again", moves("class: batch, ") > 10)


def brings_ahead():
    """A copy engine brings in the set of a session that waits, in place of one that has been idle for a
    second."""
    tenants = ["name: busy, set: 50MiB, kernel: 10ms",
               "name: other, copies: 2, set: 50MiB, arrival: periodic, period: 4s, kernel: 1ms"]
    tenants += ["name: late, join: 2s, set: 50MiB, arrival: periodic, period: 4s, kernel: 1ms"]
    without, with_engine = (float(on_tight(tenants, engine, "200s", "--slice", "20ms")[1]["lost"])
                            for engine in ("", ", copy-engine: true"))
    check("moves while others compute", with_engine < without / 2,
          f"{with_engine} % lost, without a copy engine {without} %")


def two_slots():
    """Two sessions that hold the device and do not fit together still take turns."""
    tenants = ["name: t, copies: 3, set: 60MiB, kernel: 1ms"]
    shown = output(several(tenants, devices="{name: gpu0, slots: 2, memory: 100MiB}"))
    for name, row in rows_of(shown).items():
        near(f"two slots: {name} has its part of the one that is used", row["share"], 50 / 3, 5)
    near("two slots: one computes", float(devices_of(shown)["gpu0"]["kernels"]), 50, 15)


def interrupted_moves():
    """A move that is far too slow ends when others wait, and goes on in the next turn."""
    shown = output(several(["name: slow, set: 50MiB, kernel: 1ms", "name: other, kernel: 1ms"],
                           devices="{name: gpu0, memory: 100MiB, copy-speed: 10MiB}",
                           duration="30s"))
    slow = rows_of(shown)["slow"]
    check("moves in several turns", slow["moves"] > 1, slow)
    near("  all of it, once", slow["moved"], 50, 0)
    check("  and then computes", slow["kernels"] > 5, slow["kernels"])


def leaves_with_memory():
    rows, device = on_tight(["name: early, copies: 2, set: 50MiB, leave: 1s, kernel: 1ms",
                             "name: late, copies: 2, join: 1s, set: 50MiB, kernel: 1ms"])
    check("memory of one that left is free", float(device["evicted"]) == 0, device)


def too_large():
    rows = rows_of(output(several(["name: t, set: 101MiB, kernel: 1ms", "name: u, kernel: 1ms"],
                                  devices=TIGHT % "")))
    check("a set that never fits is refused", rows["t"].get("refused") is True, rows)
    refuses("a size that is none", several(["name: t, set: much, kernel: 1ms"]), "'set' cannot be")


def plot(text, *options):
    with tempfile.NamedTemporaryFile(suffix=".svg") as file:
        output(text, "--plot", file.name, *options)
        return xml.etree.ElementTree.parse(file.name).getroot()


def texts_of(picture):
    return [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]


def stroked(picture, kind, **attributes):
    """The lines of a picture, by the colour of each."""
    return [element for element in picture.iter("{http://www.w3.org/2000/svg}" + kind)
            if all(element.get(key.replace("_", "-")) == value for key, value in attributes.items())]


def height_of(element, picture):
    """Where a line is, from 0 at the lowest to 100 at the highest line of the grid."""
    grid = [float(line.get("y1")) for line in stroked(picture, "line", stroke="#dddddd")]
    return 100 * (max(grid) - float(element.get("y1"))) / (max(grid) - min(grid))


def pictures():
    """Drawn as the plot of docs/shares.md is."""
    picture = plot((EXAMPLES / "join-leave.yaml").read_text())
    shown = texts_of(picture)
    document = (EXAMPLES.parents[2] / "docs/plots/join-leave.svg").read_text()
    used = {line.get("stroke") for line in stroked(picture, "polyline")}
    check("a plot has the colours of the documents", used and all(colour in document for colour in used), used)
    dashes = stroked(picture, "line", stroke_dasharray="5 4")
    check("  a dashed line for each entitlement", len(dashes) == 8, len(dashes))
    highest = max(float(text.split()[0]) for text in shown if text.endswith(" %"))
    near("  and its height: a request of 30 % beside two others",
         min(height_of(line, picture) for line in dashes) * highest / 100, 30, 0.5)
    ticks = [text for text in shown if text.endswith(" s")]
    check("  round times", ticks[:3] == ["0 s", "5 s", "10 s"], ticks)
    crowd = plot(several(["name: t, copies: 20, kernel: 1ms"], devices="{name: gpu0}"))
    shown = texts_of(crowd)
    check("every one of 20 tenants is in the legend", sum(text.startswith("t") for text in shown) == 20, shown)
    check("  and has a colour of its own", len({line.get("stroke") for line in stroked(crowd, "polyline")}) == 20)
    check("small shares fill the height", "20 %" not in shown and "4 %" in shown, shown)
    odd = plot(several(["name: t, kernel: 1ms"], devices="{name: gpu0}").replace("name: t", 'name: "a<b&c"'))
    check("names with signs of XML", "a<b&c" in texts_of(odd))
    check("a scale of ten seconds", "1 s" in texts_of(odd) and "1.67 s" not in texts_of(odd), texts_of(odd))
    many = plot(several(["name: t, copies: 100, kernel: 1ms", "name: u, kernel: 1ms"], devices="{name: gpu0}"))
    check("of a hundred, the entries of the file", {"t", "u"} <= set(texts_of(many)), texts_of(many))


# ---- a configuration ----

def with_config(text, config, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(config)
        file.flush()
        return output(text, "--config", file.name, *options)


def rules_for_tenants():
    text = several([f"name: {name}, kernel: 1ms" for name in ("team", "ann", "guest")], devices="{name: gpu0}")
    rows = rows_of(with_config(text, "tenants:\n  - {group: '0', name: team, request: 60%}\n"
                                     "  - {user: root, name: ann, class: batch}\n  - class: idle\n"))
    check("rules: of a name", (rows["team"]["class"], rows["ann"]["class"]) == ("standard", "batch"), rows)
    check("  for all others", rows["guest"]["class"] == "idle", rows)
    rows = rows_of(with_config(text, "tenants:\n  - {cgroup: '/a/*', per: cgroup, class: batch}\n"
                                     "  - {user: root, refuse: yes}\n"))
    check("  not one for a cgroup", {row["class"] for row in rows.values()} == {"standard"}, rows)


def rules_for_devices():
    devices = "{name: 'Card #0'}, {name: 'Card #1'}, {name: Lab card, slice: 5ms}, {name: Encoder}"
    text = several([f"name: t{i}, device: '{name}', kernel: 1ms"
                    for i, name in enumerate(("Card #0", "Card #1", "Lab card", "Encoder"))], devices=devices)
    shown = with_config(text, "devices:\n  - {match: Card, policy: fifo}\n"
                              "  - {match: '*Radeon*', name: Lab card, policy: fair}\n"
                              "  - {lease-only: yes, name: Encoder, policy: band}\n")
    found = {name: re.search(rf"^{name} +(\w+)", shown, re.M).group(1)
             for name in ("Card #0", "Card #1", "Lab card", "Encoder")}
    check("rules: cards of one name, a card with a name of its own, and one without a driver",
          list(found.values()) == ["fifo", "fifo", "fair", "band"], found)


def recordings():
    def recorded(name, sessions, device="gpu0"):
        return (f'duration: 10s\ndevices: [{{name: "{device}"}}]\ntenants:\n'
                f'  - name: "{name}"\n    device: "{device}"\n'
                "    kernel: 1ms\n    arrival: recorded\n    recorded:\n" +
                "".join(f"      - {{ended: true, bursts: [{i}ms 1ms 1ms]}}\n" for i in range(sessions)))
    long_name, long_device = "n" * 95, "d" * 127 + " #63"
    check("names as long as divvyd's", run(recorded(long_name, 1, long_device))[0].keys() == {long_name})
    near("as many sessions as divvyd can have", run(recorded("t", 5000))[1], 50, 1)


ends_whatever_the_policy_does()
pictures()
kernels_and_shares()
overheads_that_vary()
moves_take_time()
class_keeps_its_memory()
brings_ahead()
two_slots()
interrupted_moves()
leaves_with_memory()
too_large()
placement()
guarantees_come_back()
refuses_devices()
promises()
over_load()
heavy_tails()
jobs_that_end()
load_scales_what_arrives()
classes()
rules_for_tenants()
rules_for_devices()
recordings()
sys.exit(1 if failures else 0)
