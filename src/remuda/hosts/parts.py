"""
Everything that a host is made of, in order. The first boot and drift use this one list.

The order: root first, then the session that VMs need, then what keeps them in, then what runs them. The agent comes
before what builders have: a runner that becomes a builder collects no garbage any more when its first build begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.daemons import DaemonScripts
from remuda.hosts.decide.parts.agent import AgentPart
from remuda.hosts.decide.parts.auto_login import AutoLoginPart
from remuda.hosts.decide.parts.builder_tools import BuilderToolsPart
from remuda.hosts.decide.parts.dhcp import DhcpPart
from remuda.hosts.decide.parts.firewall import FirewallPart
from remuda.hosts.decide.parts.github_runner import GithubRunnerPart
from remuda.hosts.decide.parts.hostname import HostnamePart
from remuda.hosts.decide.parts.logs import LogsPart
from remuda.hosts.decide.parts.pf_shared import PfScripts
from remuda.hosts.decide.parts.power import PowerPart
from remuda.hosts.decide.parts.ssh_guard import SshGuardPart
from remuda.hosts.decide.parts.sudo import SudoPart
from remuda.hosts.decide.parts.tart import TartPart
from remuda.hosts.decide.parts.watchdog import WatchdogPart
from remuda.hosts.guards import ALL, Guards
from remuda.hosts.scripts import script

if TYPE_CHECKING:
    from remuda.hosts.decide.step import Part

_DAEMONS: Final = DaemonScripts(
    put=script("put-file"),
    seen=script("daemon-seen"),
    unload=script("daemon-unload"),
    load=script("daemon-load"),
)
_KICKSTART: Final = "launchctl kickstart -k system/com.apple.loginwindow"
_PF: Final = PfScripts(put=script("pf-put"), keep=script("pf-keep"), daemon=script("pf-daemon"))


def _login_script(guards: Guards) -> str:
    """Return what restarts the login window; without its guard, by a signal, as it once was."""
    text = script("auto-login")
    return text if guards.kickstart else text.replace(_KICKSTART, "killall -HUP loginwindow")


def parts_with(guards: Guards) -> tuple[Part, ...]:
    """Return all parts. With other guards than all it is for tests only."""
    return (
        SudoPart(script=script("sudoers")),
        AutoLoginPart(_login_script(guards), script("auto-login-seen"), guards),
        PowerPart(),
        WatchdogPart(text=script("ssh-reachability"), scripts=_DAEMONS),
        HostnamePart(),
        LogsPart(text=script("log-bound"), scripts=_DAEMONS),
        TartPart(script=script("tart")),
        FirewallPart(_PF, guards),
        SshGuardPart(_PF, script("ssh-guard-arm"), script("ssh-guard-confirm")),
        DhcpPart(),
        AgentPart(
            seen_script=script("agent-seen"),
            stage_script=script("agent-stage"),
            load_script=script("agent-load"),
            put_script=script("put-file"),
            guards=guards,
        ),
        BuilderToolsPart(
            packer_script=script("packer"),
            xcode_seen_script=script("xcode-seen"),
            xcode_script=script("xcode-select"),
        ),
        GithubRunnerPart(
            seen_script=script("runner-seen"),
            install_script=script("runner-install"),
            load_script=script("runner-load"),
            remove_script=script("runner-remove"),
            directory_script=script("own-directory"),
        ),
    )


PARTS: Final = parts_with(ALL)
