#!/bin/sh
# Keeps SSH answering. Run by launchd each minute.
#
# launchd listens for sshd. When its queue of connections that nobody took is full, the port is open and silent, and
# only loading the job anew empties the queue. Nobody can log in to do that: so the host does it.
set -eu
port=22
try() { nc -z -G 3 -w 3 127.0.0.1 "$port" >/dev/null 2>&1; }
if try; then exit 0; fi
# Once may be a moment of load.
sleep 5
if try; then exit 0; fi
printf '%s SSH does not answer on this host: its launchd job is loaded anew.\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >&2
launchctl bootout system/com.openssh.sshd 2>/dev/null || true
sleep 1
launchctl bootstrap system /System/Library/LaunchDaemons/ssh.plist
