# The third layer: the guest runner of Remuda and GitHub's runner. It is small and changes often.
#
#   packer build -var from=remuda-xcode -var runner_version=2.330.0 -var runner_sha256=… runner.pkr.hcl
#
# The checksum of GitHub's runner (actions-runner-osx-arm64) is in the notes of its release.

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
  description = "What xcode.pkr.hcl made: a VM on this machine, or an image of a registry."
}

variable "name" {
  type        = string
  default     = "remuda-runner"
  description = "The VM that is made."
}

variable "runner_version" {
  type        = string
  description = "Of GitHub's runner. It does not update itself: a runner lives for one job."
}

variable "runner_sha256" {
  type        = string
  description = "Of its archive for macOS on arm64, in hexadecimal."

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.runner_sha256))
    error_message = "The variable runner_sha256 is 64 hexadecimal digits: see the notes of the runner's release."
  }
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

source "tart-cli" "runner" {
  vm_base_name = var.from
  vm_name      = var.name
  cpu_count    = 4
  memory_gb    = 8
  headless     = true
  ssh_username = var.user
  ssh_password = var.password
  ssh_timeout  = "180s"
}

build {
  sources = ["source.tart-cli.runner"]

  provisioner "file" {
    sources     = ["${path.root}/../guest/remuda-guest", "${path.root}/../guest/dev.remuda.guest.plist"]
    destination = "/tmp/"
  }

  provisioner "shell" {
    environment_vars = [
      "ACCOUNT=${var.user}",
      "RUNNER_VERSION=${var.runner_version}",
      "RUNNER_SHA256=${var.runner_sha256}",
    ]
    script = "${path.root}/scripts/runner.sh"
  }

  # What is not tried here is found out by the first job.
  provisioner "shell" {
    environment_vars = ["ACCOUNT=${var.user}"]
    script           = "${path.root}/scripts/try-runner.sh"
  }
}
