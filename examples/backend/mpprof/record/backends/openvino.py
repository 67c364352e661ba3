"""Answers from OpenVINO, on which Keras runs inference only."""

from __future__ import annotations

from mpprof.record.backends.base import Facts, Unanswered


class OpenVinoProbe(Unanswered):
    def __init__(self) -> None:
        super().__init__("openvino")

    def devices(self) -> list[Facts]:
        return [{"kind": "cpu", "name": "host"}]
