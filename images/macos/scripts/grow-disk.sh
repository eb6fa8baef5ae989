#!/bin/sh
# In the VM: gives the system's container the whole disk. The recovery partition behind it is in the way, and a single-use
# guest needs none.
set -eu
container=$(diskutil info -plist / | plutil -extract APFSContainerReference raw -)
store=$(diskutil info -plist "$container" | plutil -extract APFSPhysicalStores.0.APFSPhysicalStore raw -)
disk=$(diskutil info -plist "$store" | plutil -extract ParentWholeDisk raw -)
recovery=$(diskutil list "$disk" | awk '/Apple_APFS_Recovery/ { print $NF }')
if [ -n "$recovery" ]; then
  yes | sudo diskutil eraseVolume free none "$recovery" || true
fi
yes | sudo diskutil repairDisk "$disk" >/dev/null
sudo diskutil apfs resizeContainer "$store" 0
df -h /
