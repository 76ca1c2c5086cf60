"""The heartbeat between engine process and front."""

from __future__ import annotations

from octavo.heartbeat import HeartbeatView, HeartbeatWriter


def test_beats_and_phases_show_on_the_other_side():
    view = HeartbeatView()
    writer = HeartbeatWriter(view.fd)
    writer.beat()
    assert view.age_s() < 1
    assert view.phase == "starting"
    writer.enter("loading", 100.0)
    assert (view.phase, view.is_overdue()) == ("loading", False)
    writer.enter("self_test", 1e-9)
    writer.enter("self_test", 100.0)
    assert (view.phase, view.is_overdue()) == ("self_test", True), "the first limit stands"
    writer.enter("ready", 0.0)
    assert (view.phase, view.is_overdue()) == ("ready", False)
    view.close()
