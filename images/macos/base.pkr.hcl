# The first layer: macOS as a runner needs it, without Xcode.
#
#   packer init base.pkr.hcl
#   packer build -var from=ghcr.io/cirruslabs/macos-tahoe-vanilla:latest base.pkr.hcl
#
# It begins with an image of macOS that has an account with SSH and automatic login, such as the vanilla ones of Tart's
# makers. A digest in place of a tag gives the same image again next month.

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
  description = "The image to begin with. It is pulled if it is not there."
}

variable "name" {
  type        = string
  default     = "remuda-base"
  description = "The VM that is made."
}

variable "user" {
  type        = string
  default     = "admin"
  description = "The account that logs in by itself and runs jobs."
}

variable "password" {
  type        = string
  default     = "admin"
  sensitive   = true
  description = "Its password. Guests are single-use and reached by nobody but their host."
}

source "tart-cli" "base" {
  vm_base_name = var.from
  vm_name      = var.name
  cpu_count    = 4
  memory_gb    = 8
  disk_size_gb = 60
  headless     = true
  ssh_username = var.user
  ssh_password = var.password
  ssh_timeout  = "180s"
}

build {
  sources = ["source.tart-cli.base"]

  provisioner "shell" {
    environment_vars = ["ACCOUNT=${var.user}", "PASSWORD=${var.password}"]
    script           = "${path.root}/scripts/base.sh"
  }
}
