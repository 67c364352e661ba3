from mpprof.record.backends import probe_for


def test_its_devices_are_known_and_its_counters_are_not() -> None:
    probe = probe_for("openvino")
    assert probe.devices() == [{"kind": "cpu", "name": "host"}]
    assert "openvino" in probe.counters(object()).reason
