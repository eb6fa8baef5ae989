#!/bin/sh
# On a builder, before a push: gives a VM its nvram.bin back, which some versions of Packer's plugin lose. Without it the VM
# neither starts nor can be pushed. Arguments: the VM, and the image that it was made from.
set -eu
vm=$1 from=$2
home=${TART_HOME:-$HOME/.tart}/vms
if [ -s "$home/$vm/nvram.bin" ]; then exit 0; fi
spare=remuda-nvram-$$
echo "$vm has no nvram.bin: taking that of $from"
trap 'tart delete "$spare"' EXIT
tart clone "$from" "$spare"
cp "$home/$spare/nvram.bin" "$home/$vm/nvram.bin"
