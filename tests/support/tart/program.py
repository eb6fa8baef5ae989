"""
The command line of ``tart`` 2.32.1, as far as a host's agent uses it. Real in locks, files, texts and exit codes.

Not here: create, import, export, rename, suspend, login, and the pruning that clone and pull do by themselves.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from tests.support.tart.failures import TartError
from tests.support.tart.faults import GENERAL, Desk, suffer
from tests.support.tart.home import Home

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = 64
_KEEPS_TMP = frozenset({"pull", "clone"})
_MODULES = {
    "list": "listing",
    "get": "listing",
    "ip": "listing",
    "set": "changing",
    "delete": "changing",
    "stop": "changing",
    "exec": "changing",
    "prune": "changing",
    "clone": "cloning",
    "pull": "transfers",
    "push": "transfers",
    "run": "running",
}
"""Each verb's module, imported when it is asked for: most need no HTTP."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as Swift's parser does, with its code."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"Error: {message}\n{self.format_usage()}")
        sys.exit(USAGE)


def refuse(text: str) -> NoReturn:
    """End as the parser does: what was given makes no sense."""
    sys.stderr.write(f"Error: {text}\nUsage: tart <subcommand>\n")
    sys.exit(USAGE)


def main(arguments: Sequence[str]) -> int:
    asked = _parser().parse_args(arguments)
    home = Home.from_env(os.environ)
    desk = Desk(home.stand_in)
    name = subject(asked)
    desk.note("begin", verb=asked.verb, vm=name, argv=list(arguments))
    code = 0
    try:
        if asked.verb not in _KEEPS_TMP:
            home.clean_tmp()
        suffer(desk.take(asked.verb, name, *GENERAL))
        module = importlib.import_module(f"tests.support.tart.{_MODULES[asked.verb]}")
        code = int(getattr(module, f"{asked.verb}_")(home, desk, asked) or 0)
        suffer(desk.take(asked.verb, name, *GENERAL, after=True))
    except TartError as error:
        if error.text:
            sys.stderr.write(error.text + "\n")
        code = error.code
    desk.note("end", verb=asked.verb, vm=name, code=code)
    return code


def subject(asked: argparse.Namespace) -> str:
    """Return the name that a call is about; of a clone the new one."""
    if asked.verb == "clone":
        return str(asked.new)
    if asked.verb == "delete":
        return str(asked.names[0])
    return str(getattr(asked, "name", ""))


def _parser() -> _Parser:
    parser = _Parser(prog="tart")
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)

    asked = verbs.add_parser("list")
    asked.add_argument("--source", choices=["local", "oci"])
    asked.add_argument("--format", choices=["text", "json"], default="text")
    asked.add_argument("-q", "--quiet", action="store_true")

    asked = verbs.add_parser("get")
    asked.add_argument("name")
    asked.add_argument("--format", choices=["text", "json"], default="text")

    asked = verbs.add_parser("ip")
    asked.add_argument("name")
    asked.add_argument("--wait", type=int, default=0)
    asked.add_argument("--resolver", choices=["dhcp", "arp", "agent"], default="dhcp")

    _add_changing(verbs)
    _add_images(verbs)
    _add_run(verbs)
    return parser


def _add_changing(verbs: argparse._SubParsersAction[_Parser]) -> None:
    asked = verbs.add_parser("set")
    asked.add_argument("name")
    for option in ("--cpu", "--memory", "--disk-size"):
        asked.add_argument(option, type=int)
    asked.add_argument("--display")
    asked.add_argument("--display-refit", action=argparse.BooleanOptionalAction)
    asked.add_argument("--random-mac", action="store_true")
    asked.add_argument("--random-serial", action="store_true")

    asked = verbs.add_parser("delete")
    asked.add_argument("names", nargs="+")

    asked = verbs.add_parser("stop")
    asked.add_argument("name")
    asked.add_argument("-t", "--timeout", type=int, default=30)

    asked = verbs.add_parser("exec")
    asked.add_argument("-i", dest="interactive", action="store_true")
    asked.add_argument("-t", dest="tty", action="store_true")
    asked.add_argument("name")
    asked.add_argument("command", nargs=argparse.REMAINDER)

    asked = verbs.add_parser("prune")
    asked.add_argument("--entries", choices=["caches", "vms"], default="caches")
    asked.add_argument("--older-than", type=int)
    asked.add_argument("--space-budget", type=int)


def _add_images(verbs: argparse._SubParsersAction[_Parser]) -> None:
    asked = verbs.add_parser("clone")
    asked.add_argument("source")
    asked.add_argument("new")
    asked.add_argument("--prune-limit", type=int, default=100)
    pulled = verbs.add_parser("pull")
    pulled.add_argument("name")
    for each in (asked, pulled):
        each.add_argument("--insecure", action="store_true")
        each.add_argument("--concurrency", type=int, default=4)

    asked = verbs.add_parser("push")
    asked.add_argument("name")
    asked.add_argument("images", nargs="+")
    asked.add_argument("--insecure", action="store_true")
    asked.add_argument("--concurrency", type=int, default=4)
    asked.add_argument("--chunk-size", type=int, default=0)
    asked.add_argument("--populate-cache", action="store_true")
    asked.add_argument("--label", action="append", default=[])


def _add_run(verbs: argparse._SubParsersAction[_Parser]) -> None:
    asked = verbs.add_parser("run")
    asked.add_argument("name")
    for flag in ("--graphics", "--no-graphics", "--vnc", "--vnc-experimental", "--no-audio"):
        asked.add_argument(flag, action="store_true")
    for flag in ("--net-softnet", "--net-host"):
        asked.add_argument(flag, action="store_true")
    for option in ("--net-bridged", "--net-softnet-allow", "--net-softnet-block"):
        asked.add_argument(option)
    asked.add_argument("--root-disk-opts", default="")
    asked.add_argument("--dir", action="append", default=[], dest="shares")
    asked.add_argument("--disk", action="append", default=[], dest="disks")
