"""Takes out of a text what says whose machine it is from: names of users and of the host, home directories, values of
environment variables, UUIDs and addresses of network interfaces."""

import os
import pathlib
import pwd
import re
import socket
import tempfile

SHORTEST_VALUE = 8   # of a variable: shorter ones, such as "yes", are words of any text
FIRST_USER = 1000    # users below are parts of the system
NO_SECRET = ("/usr", "/bin", "/sbin", "/lib", "/etc/OpenCL", "/dev", "C.UTF-8")
PATTERNS = [(re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "UUID"),
            (re.compile(r"\b([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "MAC"),
            (re.compile(r"/home/[^/\s:'\"]+"), "HOME"),
            (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"), "MAIL")]


def user_names():
    names = {os.environ.get(key) for key in ("USER", "LOGNAME", "SUDO_USER")}
    names |= {entry.pw_name for entry in pwd.getpwall()
              if entry.pw_uid >= FIRST_USER or entry.pw_uid == os.getuid()}
    return names - {None, "", "root", "nobody"}


def home_directories():
    homes = {os.environ.get("HOME"), os.path.expanduser("~")}
    homes |= {entry.pw_dir for entry in pwd.getpwall() if entry.pw_uid >= FIRST_USER or entry.pw_uid == os.getuid()}
    return {home for home in homes if home and home not in ("/", "/nonexistent")}


def host_names():
    full = socket.gethostname()
    return {full, full.split(".")[0]} - {"", "localhost"}


def variables():
    """(name, value) of each variable whose value could say something."""
    return [(name, value) for name, value in os.environ.items()
            if len(value) >= SHORTEST_VALUE and not value.startswith(NO_SECRET)]


class Scrubber:
    def __init__(self, source, build, work):
        """source, build, work: directories of this run, which are named by a word."""
        places = [(str(work), "WORK"), (str(build), "BUILD"), (str(source), "SOURCE"),
                  (tempfile.gettempdir(), "/tmp")]
        places += [(str(pathlib.Path(home)), "HOME") for home in home_directories()]
        words = [(value, "$" + name) for name, value in variables()]
        texts = sorted(places + words, key=lambda pair: -len(pair[0]))
        self.texts = [(text, word) for text, word in texts if text != word and len(text) > 1]
        self.words = [(re.compile(r"(?<![\w-])%s(?![\w-])" % re.escape(name)), word)
                      for names, word in ((host_names(), "HOST"), (user_names(), "USER"))
                      for name in sorted(names, key=len, reverse=True)]

    def scrub(self, text):
        for secret, word in self.texts:
            text = text.replace(secret, word)
        for pattern, word in PATTERNS + self.words:
            text = pattern.sub(word, text)
        return text
