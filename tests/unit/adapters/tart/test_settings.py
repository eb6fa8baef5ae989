from __future__ import annotations

from pathlib import Path

from remuda.adapters.tart import TartSettings

ENV = {
    "PATH": "/usr/bin",
    "HOME": "/home/someone",
    "TART_REGISTRY_USERNAME": "builder",
    "TART_REGISTRY_PASSWORD": "hunter2",
    "KUBECONFIG": "/secret/kubeconfig",
    "AWS_SECRET_ACCESS_KEY": "hunter3",
}


def test_only_what_tart_needs_goes_on_to_it() -> None:
    settings = TartSettings(folder=Path("/x"), env=ENV)
    assert set(settings.call_env()) == {
        "PATH",
        "HOME",
        "TART_REGISTRY_USERNAME",
        "TART_REGISTRY_PASSWORD",
        "TART_NO_AUTO_PRUNE",
    }
    assert set(settings.run_env()) == {"PATH", "HOME", "TART_NO_AUTO_PRUNE"}
    assert "hunter2" not in repr(settings)


def test_where_tart_keeps_its_vms() -> None:
    assert TartSettings(folder=Path("/x"), env=ENV).home == Path("/home/someone/.tart")
    moved = TartSettings(folder=Path("/x"), env={**ENV, "TART_HOME": "/big"})
    assert moved.home == Path("/big")
