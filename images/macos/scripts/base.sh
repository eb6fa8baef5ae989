#!/bin/sh
# In the VM: makes macOS a quiet place for jobs. Reads ACCOUNT and PASSWORD from the environment.
set -eu

# Asking for a password would stop a job for ever. A guest is single-use: whoever is in it may be root in it.
printf '%s\n' "$PASSWORD" | sudo -S -p '' true
line="$ACCOUNT ALL=(ALL) NOPASSWD: ALL"
printf '%s\n' "$line" | sudo tee /etc/sudoers.d/remuda >/dev/null
sudo chmod 0440 /etc/sudoers.d/remuda
sudo visudo -cf /etc/sudoers.d/remuda

# Neither sleep nor a lock: both end what runs at the screen.
sudo pmset -a sleep 0 displaysleep 0 disksleep 0
sudo defaults write /Library/Preferences/.GlobalPreferences com.apple.autologout.AutoLogOutDelay -int 0
defaults -currentHost write com.apple.screensaver idleTime -int 0
defaults write com.apple.screensaver askForPassword -int 0

# Updates and indexes take the disk and the processor from jobs.
sudo softwareupdate --schedule off
sudo defaults write /Library/Preferences/com.apple.SoftwareUpdate AutomaticDownload -bool false
sudo mdutil -a -i off >/dev/null

# A clone's clock is as old as its image: jobs fail at certificates until it is set.
sudo systemsetup -setusingnetworktime on >/dev/null
sudo sntp -sS time.apple.com >/dev/null

# The command-line tools, for those who build without Xcode: git is one of them.
if ! xcode-select -p >/dev/null 2>&1; then
  asked=/tmp/.com.apple.dt.CommandLineTools.installondemand.in-progress
  touch "$asked"
  label=$(softwareupdate --list 2>/dev/null | sed -n 's/^\* Label: \(Command Line Tools.*\)/\1/p' | tail -n 1)
  [ -n "$label" ] || {
    echo "Apple offers no command-line tools for this macOS" >&2
    exit 1
  }
  softwareupdate --install "$label"
  rm -f "$asked"
fi
git --version
