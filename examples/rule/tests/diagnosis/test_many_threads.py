from dataclasses import replace

from tests.builders import cases as c
from tests.diagnosis.saying import says


def test_more_threads_than_the_limit_are_found() -> None:
    trace = c.trace()
    many = replace(trace, threads=tuple(f"thread {n}" for n in range(65)))
    assert says("MP399", c.case(trace=many)) == "info"
    assert says("MP399", c.case(trace=trace)) == "clear"
