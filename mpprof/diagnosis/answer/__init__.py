"""The answer of a report, composed once: every place prints its fields, and composes nothing."""

from mpprof.diagnosis.answer.compose import compose

__all__ = ["compose"]
