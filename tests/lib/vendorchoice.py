"""Which vendor's driver tests and benches use, if not the one that they are written for.

DIVVY_TEST_VENDORS names a directory of .icd files. Programs without divvy and the workers of divvyd then use these
drivers and no others. If the directory has a file sandbox.yaml, it is the `sandbox` of a device rule, in YAML's flow
style: what the drivers need besides the usual, such as a card's device nodes. tests/hardware/run makes such a
directory.
"""

import os

SCRIPT = "DIVVY_VENDOR_SCRIPT"   # of the scripted vendor, see tests/vendor/README.md
# The sandbox settings of all rules apply to all workers, so the rule need not match a device.
RULE = '  - match: "(device nodes for all workers)"\n    sandbox: %s\n'


def directory():
    """The chosen directory, or None."""
    return os.environ.get("DIVVY_TEST_VENDORS") or None


def environment():
    """What makes programs, by the loader, and divvyd use the chosen drivers. Empty if none are chosen."""
    if not directory():
        return {}
    chosen = {"OCL_ICD_VENDORS": directory(), "DIVVY_VENDORS": directory()}
    return {**chosen, SCRIPT: os.environ[SCRIPT]} if SCRIPT in os.environ else chosen


def config(text):
    """A configuration of divvyd, with the sandbox of the chosen drivers. text: None stands for an empty one."""
    path = os.path.join(directory() or "", "sandbox.yaml")
    if not directory() or not os.path.exists(path):
        return text
    with open(path) as file:
        sandbox = file.read().strip()
    before, _, after = ("\n" + (text or "")).partition("\ndevices:\n")
    full = (before + "\ndevices:\n" + RULE % sandbox + after).lstrip("\n")
    if "groups" in sandbox and "session-group:" not in full:
        full += "session-group: everybody\n"   # by default only the members of those groups
    return full
