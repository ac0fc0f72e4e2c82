"""The commented configuration that is installed, integration/divvy.yaml: its recipes as files of their own, and the
measurement of what the recipe with two groups promises."""

import json
import os
import re
import statistics
import time

import divvytest

SAMPLE = os.path.join(divvytest.REPOSITORY, "integration", "divvy.yaml")
LAB, LAPTOP, CONTAINERS, ALL_KEYS = "recipe: lab with two groups", "recipe: laptop", "recipe: containers", "all keys"


def read(path=SAMPLE):
    """The settings of each part of the file, by the part's heading, as if their comment signs were removed."""
    with open(path, encoding="utf-8") as file:
        parts = re.split(r"^## ==== (.*) ====$", file.read(), flags=re.M)
    return {title: "".join(line[2:] + "\n" for line in text.splitlines() if line.startswith("# "))
            for title, text in zip(parts[1::2], parts[2::2])}


def used_s(tenants):
    """Device time of each tenant by its name, from what `divvy tenants --json` prints."""
    return {tenant["name"]: sum(device["used_s"] for device in tenant["devices"])
            for tenant in json.loads(tenants)["tenants"]}


def part_of(name, other, tenants, windows=7, window_s=2):
    """The median, over several windows, of a tenant's part of the time that it and another used, in percent.

    tenants: a function that returns what `divvy tenants --json` prints
    """
    seen = []
    before = used_s(tenants())
    for _ in range(windows):
        time.sleep(window_s)
        after = used_s(tenants())
        own, others = (after[key] - before[key] for key in (name, other))
        seen.append(100 * own / (own + others))
        before = after
    print("%s: %s %% of the time of %s and %s" % (name, ["%.1f" % part for part in seen], name, other))
    return statistics.median(seen)
