"""What was not found, does not apply or is not known is said in words, by reason."""

from __future__ import annotations

from dataclasses import replace

from mpprof.api.source import LogDirectory
from mpprof.diagnosis.rules import ALL
from mpprof.model.finding import Unable
from mpprof.report import json as documents
from tests.builders import cases as c
from tests.builders.read_back import markdown, text, without_finding
from tests.diagnosis.saying import diagnosed
from tests.paths import SAMPLES
from tests.report import hand_made


def test_each_cause_is_in_one_list_and_what_does_not_apply_is_not_called_clear() -> None:
    """Of a float32 run nothing can be said of loss scaling and of 16-bit kernels: those are not clear."""
    case = c.case(records=c.facts("float32"), account=c.account(c.fallback(90)), table=c.steps())
    document = documents.document(diagnosed(case))
    beside = {each["code"]: each["reason"] for each in document["not_applicable"]}
    assert {"MP201", "MP202", "MP803", "MP805"} <= set(beside)
    assert beside["MP805"] == "the run does not compute in 16 bits"
    assert beside["MP803"] == "this GPU has no TF32"
    lists = [
        [each["code"] for each in document["findings"]],
        [each["code"] for each in document["unable"]],
        document["clear"],
        list(beside),
    ]
    assert sorted(code for one in lists for code in one) == sorted(rule.CODE for rule in ALL)


def test_no_code_and_no_field_of_the_json_stands_in_the_text() -> None:
    document = documents.document(hand_made.cpu())
    for rendered in (text.render(document), markdown.render(document)):
        said = rendered[rendered.index("not judged" if "####" in rendered else "Could not be judged") :]
        assert "wall_ns" not in said
        assert "tf32_enabled" not in said
        assert "Checked and clear: a model built before its policy, missing loss scaling" in said
        assert "emulated bfloat16: the run does not compute in bfloat16" in said


def test_each_reason_names_its_causes_and_what_settles_several_is_said_once() -> None:
    record = "train with MPProfilerCallback"
    unable = [Unable(code, f"no step log was recorded; {record}") for code in ("MP901", "MP807")]
    unable += [Unable("MP308", f"the facts of `fit` were not recorded; {record}")]
    document = documents.document(replace(hand_made.bare(), unable=tuple(unable)))
    assert without_finding.not_judged(document) == [
        "warm-up, throttling: no step log was recorded",
        "eager execution: the facts of `fit` were not recorded",
        f"to judge these: {record}",
    ]


def test_many_causes_of_one_reason_are_counted() -> None:
    codes = [rule.CODE for rule in ALL][:9]
    assert without_finding.listed(codes).endswith(" and 3 more")
    assert without_finding.listed(codes[:7]).count(",") == 6


def test_a_field_without_a_name_of_its_own_is_put_into_words() -> None:
    assert without_finding.field_words("facts.limited_by") == "limited by"
    assert without_finding.field_words("time.wall_ns") == "the step time outside the profiler"


def test_each_reason_stands_once_with_the_names_of_what_it_keeps_unknown() -> None:
    """Of a run without a baseline nineteen values are unknown for two reasons."""
    document = documents.document(hand_made.cpu())
    found = without_finding.absent_by_reason(document)
    reasons = [why for why, _ in found]
    assert len(set(reasons)) == len(reasons)
    names = [name for _, listed in found for name in listed]
    assert not [name for name in names if "_" in name or "." in name or "," in name.replace("log, ", "")]
    assert "the baseline's step time" in names


def test_every_value_that_a_sample_lacks_has_a_name() -> None:
    source = LogDirectory(SAMPLES)
    absent = {
        field
        for run in ("v100-convnet-float32", "v100-convnet-mixed-float16", "recorded-cpu-float32")
        for field in source.report(run, None).absent
        if not field.startswith("facts.")
    }
    assert absent - set(without_finding.FIELD_WORDS) == set()


def test_beside_a_lone_trace_all_that_records_would_tell_is_one_line() -> None:
    recorder = 'put StepRecorder("logs/run", model=model) round the training loop'
    unable = (
        Unable("MP901", 'no step log was recorded; put StepRecorder("logs/run") round the training loop'),
        Unable("MP308", f"the facts of `fit` were not recorded; {recorder}"),
        Unable("MP410", "the model's layers were not recorded"),
        Unable("MP301", "the device idles 39.0 % of the window and the trace does not show what for"),
    )
    document = documents.document(replace(hand_made.bare(), unable=unable))
    document["absent"]["run"] = "no records of mpprof lie beside the trace"
    assert without_finding.not_judged(document) == [
        f"warm-up, eager execution, recurrent layers without cuDNN: {without_finding.ONLY_A_TRACE}; {recorder}",
        "waits for input: the device idles 39.0 % of the window and the trace does not show what for",
    ]
