# The second layer: one Xcode. It takes an hour and changes when Apple releases one, so it is a layer of its own.
#
#   packer build -var from=remuda-base -var xcode=26.1 -var xip=/path/of/Xcode_26.1.xip xcode.pkr.hcl
#
# Apple gives the .xip to those who are logged in only: download it once and keep it where builders find it.

packer {
  required_version = ">= 1.14.0"
  required_plugins {
    tart = {
      source  = "github.com/cirruslabs/tart"
      version = ">= 1.16.0"
    }
  }
}

variable "from" {
  type        = string
  description = "What base.pkr.hcl made: a VM on this machine, or an image of a registry."
}

variable "name" {
  type        = string
  default     = "remuda-xcode"
  description = "The VM that is made."
}

variable "xcode" {
  type        = string
  description = "The version, such as 26.1. An archive that holds another one is refused."
}

variable "xip" {
  type        = string
  description = "Where on this machine the archive of that Xcode is."
}

variable "user" {
  type    = string
  default = "admin"
}

variable "password" {
  type      = string
  default   = "admin"
  sensitive = true
}

source "tart-cli" "xcode" {
  vm_base_name = var.from
  vm_name      = var.name
  cpu_count    = 4
  memory_gb    = 8
  disk_size_gb = 140
  headless     = true
  ssh_username = var.user
  ssh_password = var.password
  ssh_timeout  = "180s"
}

build {
  sources = ["source.tart-cli.xcode"]

  provisioner "shell" {
    script = "${path.root}/scripts/grow-disk.sh"
  }

  provisioner "file" {
    source      = var.xip
    destination = "/Users/${var.user}/Xcode.xip"
  }

  provisioner "shell" {
    environment_vars = ["XCODE=${var.xcode}"]
    script           = "${path.root}/scripts/xcode.sh"
    timeout          = "90m"
  }
}
