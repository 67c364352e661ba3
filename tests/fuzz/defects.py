"""What valid but unusual input once did wrong: where each mend stands, and the tests that fail without it.

python -m tests.fuzz.defects [TEXT]    takes each mend whose name holds TEXT out of a copy of the project, and runs its tests
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

_ODD = "tests/api/test_odd_traces.py"
_BOUNDS = "tests/store/test_bounds.py"
_CACHE = "tests/traces/test_cache.py"
_HOSTILE = "tests/dashboards/test_hostile.py"
_SAVING = "tests/record/test_saving.py"
_PRIVATE = "tests/cli/test_bundle_private.py"
_LIMITS = "tests/cli/test_bundle_limits.py"
_OUTPUT = "tests/cli/test_output.py"
_ENDS = "tests/record/facts/test_model_process.py"
_SURVEY = "tests/api/test_survey.py"
_REMOTE = "tests/traces/test_remote_faults.py"
_SNAPSHOTS = "tests/cli/test_memory_snapshots.py"
_TUNING = "tests/analysis/steps/test_autotuning.py"
_STORE = "tests/store/test_store.py"
_AUDIT = "tests/record/test_audit.py"
_ARGUMENTS = "tests/cli/test_arguments.py"
_COMMANDS = "tests/cli/test_commands.py"
_SERVER = "tests/dashboards/test_hostile_server.py"
_MODELS = "tests/record/facts/test_model_attacks.py"


@dataclass(frozen=True)
class Defect:
    """`mend` stands once in `file`; with `without` in its place every one of `tests` fails."""

    name: str
    file: str
    mend: str
    without: str
    tests: tuple[str, ...]


DEFECTS = (
    Defect(
        "a profile_start_time that is no date: OverflowError",
        "mpprof/traces/xspace/reader.py",
        'started = limits.unix_ns(plane.stats.get("profile_start_time"))',
        'started = plane.stats.get("profile_start_time")',
        (f"{_ODD}::test_a_profile_that_began_at_no_date_is_joined_with_its_records",),
    ),
    Defect(
        "events without length at one time: max() of an empty sequence",
        "mpprof/analysis/steps/accounted_steps.py",
        "_lasting(boundaries.periods(trace, device))",
        "boundaries.periods(trace, device)",
        (
            f"{_ODD}::test_steps_of_a_device_whose_clock_stood_still_are_none",
            f"{_ODD}::test_a_step_without_length_beside_others_is_no_step",
        ),
    ),
    Defect(
        "events that only count how often something ran: another account",
        "mpprof/traces/common/walk_reference.py",
        "            if event.aggregated:\n",
        "            if event.aggregated and False:\n",
        (f"{_ODD}::test_what_lies_nowhere_in_the_training_changes_no_finding",),
    ),
    Defect(
        "planes of unknown kinds: other findings",
        "mpprof/traces/common/names.py",
        "return known or bool(ACCELERATOR.match(plane) or HOST.match(plane))",
        "return True",
        (f"{_ODD}::test_what_a_plane_of_an_unknown_kind_holds_is_no_work",),
    ),
    Defect(
        "planes named almost like a host's: read as threads of the training",
        "mpprof/traces/common/names.py",
        "|python-tracer|TPU-runtime)$",
        "|python-tracer|TPU-runtime|.*)$",
        (f"{_ODD}::test_what_a_plane_of_an_unknown_kind_holds_is_no_work",),
    ),
    Defect(
        "a dimension of 2^63-1 in run.json: a minute",
        "mpprof/store/bounded.py",
        "return type(value) is int and 0 <= value <= limits.LARGEST_DIMENSION",
        "return True",
        (f"{_BOUNDS}::test_a_dimension_that_no_tensor_has_leaves_no_shape",),
    ),
    Defect(
        "a number as the name of a class: 12 s",
        "mpprof/store/facts.py",
        'class_name=bounded.name(record, "class") or "",\n        compute_dtype',
        'class_name=record.get("class") or "",\n        compute_dtype',
        (f"{_BOUNDS}::test_a_class_that_is_no_name_is_none",),
    ),
    Defect(
        "thousands of GPUs in hardware.jsonl: more than a minute, read",
        "mpprof/store/step_columns.py",
        "0 <= gpu < limits.MOST_GPUS",
        "0 <= gpu",
        (f"{_BOUNDS}::test_samples_of_more_cards_than_there_are_and_lists_of_nothing",),
    ),
    Defect(
        "thousands of GPUs in hardware.jsonl: more than a minute, drawn",
        "dashboards/mpprof_dashboards/figures/steps.py",
        "for device in devices[:MOST_DEVICES]:",
        "for device in devices:",
        (f"{_BOUNDS}::test_samples_of_more_cards_than_there_are_and_lists_of_nothing",),
    ),
    Defect(
        "thousands of empty lists in a line: more than a minute",
        "mpprof/store/step_columns.py",
        "names = (each for each in value[: limits.MOST_THROTTLES] if isinstance(each, str))",
        "names = map(str, value)",
        (f"{_BOUNDS}::test_samples_of_more_cards_than_there_are_and_lists_of_nothing",),
    ),
    Defect(
        "durations of 0 in steps.jsonl: 6 s",
        "mpprof/analysis/steps/statistics.py",
        "rows = _without((time > 0) & usable, waits)",
        "rows = _without((time >= 0) & usable, waits)",
        (f"{_BOUNDS}::test_a_step_without_duration_counts_for_no_step_time",),
    ),
    Defect(
        "one infinite or huge duration in steps.jsonl: 6 s",
        "mpprof/store/step_columns.py",
        "elif type(value) is not int or not ABSENT <= value <= _LARGEST[key]:",
        "elif type(value) is int and not ABSENT <= value:",
        (
            f"{_BOUNDS}::test_one_odd_duration_gives_a_report",
            f"{_BOUNDS}::test_a_step_line_with_a_number_that_was_never_measured_is_left_out",
        ),
    ),
    Defect(
        "a sample of the hardware at a time that no clock shows: no bound",
        "mpprof/store/step_columns.py",
        "return type(value) is int and abs(value) <= limits.LONGEST_NS",
        "return type(value) is int and abs(value) < 1 << 63",
        (f"{_BOUNDS}::test_a_sample_at_a_time_that_no_clock_shows_is_left_out",),
    ),
    Defect(
        "modules of PyTorch beside ten thousand layers: 40 s for a trace of 1 MiB",
        "mpprof/analysis/layers/modules.py",
        "        fitting = names.keys() & _kernels(sizes.get(path, ()))",
        "        fitting = {_widths(fact) for fact in layers} & _kernels(sizes.get(path, ()))",
        ("tests/analysis/layers/test_modules.py::test_modules_of_many_layers_are_each_looked_at_once",),
    ),
    Defect(
        "a gzip file of 500,000 empty members: more than a minute for 10 MB",
        "mpprof/traces/common/gzip_stream.py",
        "                if members > most:",
        "                if members < 0:",
        ("tests/traces/test_damage.py::test_a_gzip_file_has_many_members_but_not_more_than_any_has",),
    ),
    Defect(
        "a gap of a terabyte in a log: read for more than a minute",
        "mpprof/store/lines.py",
        "(count < limits.MOST_LINES and line < limits.LONGEST_DAMAGE_BYTES)",
        "count < limits.MOST_LINES",
        (f"{_BOUNDS}::test_a_gap_without_the_end_of_a_line_is_not_read_to_its_end",),
    ),
    Defect(
        "a gap of a terabyte between events: read for more than a minute",
        "mpprof/traces/chrome/json.py",
        "while self.tries < _MOST_TRIES and window.byte - start < limits.LONGEST_DAMAGE_BYTES:",
        "while self.tries < _MOST_TRIES:",
        ("tests/traces/test_chrome.py::test_behind_a_gap_of_any_length_no_event_is_looked_for",),
    ),
    Defect(
        "10 MB of blank lines: 772 MiB",
        "mpprof/store/lines.py",
        'whole.replace(b"\\n", b",")',
        'b",".join(whole.split(b"\\n"))',
        (f"{_BOUNDS}::test_blank_lines_take_no_more_memory_than_a_few_times_their_bytes",),
    ),
    Defect(
        "ids written as 7.0: kernels left out, others not joined with their launches",
        "mpprof/traces/chrome/kineto.py",
        'digits = value.removesuffix(".0")',
        "digits = value",
        ("tests/traces/test_chrome.py::test_ids_that_a_tool_wrote_as_floats_are_the_same_ids",),
    ),
    Defect(
        "a bounds file of a Windows editor, with a byte order mark: refused",
        "mpprof/report/bounds_file.py",
        'content.decode("utf-8-sig")',
        "content.decode()",
        ("tests/cli/test_check.py::test_files_that_begin_with_a_byte_order_mark_are_read",),
    ),
    Defect(
        "a trace that is overwritten while it is read: the process is killed",
        "mpprof/traces/xspace/reader.py",
        "found = (_sparse if sparse else _whole)(file, before.st_size)",
        "found = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)",
        ("tests/traces/test_damage.py::test_a_file_that_is_cut_off_while_it_is_read_kills_no_process",),
    ),
    Defect(
        "a text of a terabyte in a sparse xplane: MemoryError",
        "mpprof/traces/common/planes.py",
        "return min(end, start + limits.LONGEST_RAW_TEXT_BYTES)",
        "return end",
        (
            "tests/traces/test_damage.py::test_a_text_of_a_terabyte_is_not_read_to_its_end",
            "tests/traces/test_damage.py::test_of_a_long_text_the_beginning_is_read",
        ),
    ),
    Defect(
        "instructions that read all before them: 7.5 s for a program of 10 MiB",
        "mpprof/traces/common/hlo.py",
        "varints(buffer, fields, 36)[: module.operands]",
        "varints(buffer, fields, 36)",
        ("tests/traces/test_damage.py::test_operands_are_read_as_many_as_a_program_has_on_average",),
    ),
    Defect(
        "a file whose bytes are yet to come, as a record of a run: TypeError",
        "mpprof/regular.py",
        "if content is None:",
        "if content is NotImplemented:",
        ("tests/test_regular.py::test_a_file_that_would_be_waited_for_cannot_be_read",),
    ),
    Defect(
        "a pipe, a device or nested JSON in the place of a cache's entry: a hang, no memory, a RecursionError",
        "mpprof/traces/cache/entries.py",
        "EOFError, RuntimeError, BadZipFile",
        "EOFError, BadZipFile",
        (f"{_CACHE}::test_whatever_stands_in_the_place_of_an_entry_is_no_obstacle",),
    ),
    Defect(
        "a cache's directory with a name that is too long: no report",
        "mpprof/traces/cache/entries.py",
        "except _DAMAGE as error:\n            if os.path.lexists(path):",
        "except _DAMAGE as error:\n            if path.exists():",
        (f"{_CACHE}::test_a_place_that_cannot_be_written_is_no_obstacle",),
    ),
    Defect(
        "a trace that is cut off while it is read: kept, and shown when the file is whole again",
        "mpprof/traces/cache/entries.py",
        "if _state(path) == before:",
        "if True:",
        (f"{_CACHE}::test_a_trace_that_changes_while_it_is_read_is_not_kept",),
    ),
    Defect(
        "a trace replaced by another, and its entry evicted: columns of both",
        "mpprof/traces/cache/entries.py",
        "if digest(path, version) != key:",
        "if False:",
        (f"{_CACHE}::test_columns_of_another_trace_are_never_taken",),
    ),
    Defect(
        "a thousand levels of directories: every page a RecursionError",
        "mpprof/folders.py",
        "waiting.append((path, level + 1, real and os.path.join(real, name)))",
        "yield from walk(path, refused)",
        (
            f"{_HOSTILE}::test_a_tree_of_a_thousand_levels_is_looked_through",
            f"{_HOSTILE}::test_that_directories_lie_beyond_the_bound_is_said",
        ),
    ),
    Defect(
        "a run that goes while runs are listed: none of them is listed, and another's report is a 404",
        "mpprof/runs/loading.py",
        "in traces.traces_in(root) if",
        "in traces.find_traces(root) if",
        (f"{_HOSTILE}::test_a_run_that_goes_at_any_look_into_its_directories_leaves_the_others_shown",),
    ),
    Defect(
        "deeply nested JSON in a callback: 500 and a traceback",
        "dashboards/mpprof_dashboards/call_bodies.py",
        "except RecursionError:  # deeply nested",
        "except NotImplementedError:",
        (f"{_HOSTILE}::test_deeply_nested_json_is_the_callers_error",),
    ),
    Defect(
        "a component suite that there is not: 500 and a traceback",
        "dashboards/mpprof_dashboards/app.py",
        "app.server.register_error_handler(DependencyException, _no_such_file)",
        "pass",
        (f"{_HOSTILE}::test_a_script_that_is_not_there_is_not_found",),
    ),
    Defect(
        "-o names a device or a pipe: replaced by a file",
        "mpprof/cli/output.py",
        "or (path.exists() and not path.is_file()):",
        "or False:",
        (
            f"{_OUTPUT}::test_a_device_stays_a_device",
            f"{_OUTPUT}::test_a_pipe_carries_what_is_written",
        ),
    ),
    Defect(
        "-o names a link: replaced by a file",
        "mpprof/cli/output.py",
        "_replace(content, Path(os.path.realpath(path)))",
        "_replace(content, path)",
        (f"{_OUTPUT}::test_a_link_stays_and_its_target_is_written",),
    ),
    Defect(
        "-o replaces a file of mode 0600: 0644",
        "mpprof/cli/output.py",
        "os.fchmod(file.fileno(), stat.S_IMODE(replaced.st_mode))",
        "pass",
        (f"{_OUTPUT}::test_the_mode_of_a_replaced_file_is_kept",),
    ),
    Defect(
        "-o /dev/stdout: what the shell redirected it to is replaced, and what others wrote is lost",
        "mpprof/cli/output.py",
        "(descriptor := _descriptor(path)) is not None",
        "(descriptor := None) is not None",
        (f"{_OUTPUT}::test_standard_output_is_written_where_it_stands",),
    ),
    Defect(
        "a model's file that holds code, or names functions of other modules: run",
        "mpprof/record/facts/saved_model.py",
        "    refuse_unsafe(config, keras, known, str(found.path))\n",
        "",
        (
            f"{_MODELS}::test_what_a_file_of_keras_3_may_not_name",
            f"{_MODELS}::test_what_a_file_of_keras_2_may_not_name",
            f"{_MODELS}::test_a_function_of_another_module_in_a_newer_file_of_keras_2",
            f"{_MODELS}::test_no_command_runs_the_code_of_keras_2",
        ),
    ),
    Defect(
        "an op layer of Keras 2 that calls any function of TensorFlow: run",
        "mpprof/record/facts/model_vetting.py",
        "if name in _OP_LAYERS and not _is_op(inner):",
        "if False:",
        (f"{_MODELS}::test_what_a_file_of_keras_2_may_not_name",),
    ),
    Defect(
        "a SavedModel: its code is run",
        "mpprof/record/facts/model_file.py",
        "    if is_saved_model(path):\n",
        "    if False:\n",
        (f"{_MODELS}::test_a_saved_model_is_code",),
    ),
    Defect(
        "a vocabulary in another file: read, from whatever address",
        "mpprof/record/facts/model_vetting.py",
        'if isinstance(one.get("vocabulary"), str):',
        "if False:",
        (f"{_MODELS}::test_what_a_file_of_keras_3_may_not_name",),
    ),
    Defect(
        "a module beside a model with the name of a library: imported",
        "mpprof/child.py",
        'return [python or sys.executable, "-P", *arguments]',
        "return [python or sys.executable, *arguments]",
        (f"{_MODELS}::test_no_command_runs_the_code_of_keras_2",),
    ),
    Defect(
        "a model of 15 kB with a layer of 150,000,000 units: 13 GB",
        "mpprof/record/facts/saved_model.py",
        "with nullcontext() if trust else without_values(keras):",
        "with nullcontext():",
        (f"{_MODELS}::test_the_weights_of_a_model_are_neither_read_nor_drawn",),
    ),
    Defect(
        "a model that takes all memory: no bound",
        "mpprof/record/facts/described.py",
        "if seen.memory_info().rss > MOST_BYTES:",
        "if False:",
        (f"{_MODELS}::test_what_takes_too_much_is_ended",),
    ),
    Defect(
        "a description of a model that unpacks to gigabytes: read",
        "mpprof/record/facts/model_file.py",
        "if len(content) > most_bytes:",
        "if False:",
        (f"{_MODELS}::test_a_description_without_end",),
    ),
    Defect(
        "a name that a spreadsheet takes for a formula: written as one on the command line",
        "mpprof/report/tables.py",
        """return f"'{plain}" if _FORMULA(plain) and not _is_number(plain) else plain""",
        "return plain",
        ("tests/report/test_csv.py::test_a_text_that_would_be_a_formula_is_a_text",),
    ),
    Defect(
        "one fsync of 6 s: the training waits, and no step of 1,200 was kept",
        "mpprof/store/writing.py",
        "            thread.start()\n            self._thread = thread\n",
        "            self._thread = thread\n        self._run()\n",
        (f"{_SAVING}::test_a_disk_that_is_slow_with_run_json_costs_no_step",),
    ),
    Defect(
        "a run.json that failed once: never written again",
        "mpprof/record/recorder.py",
        "                run_file.again()",
        "                pass",
        (f"{_SAVING}::test_run_json_that_cannot_be_written_is_tried_again",),
    ),
    Defect(
        "a step log that failed: the fit has finished, it says",
        "mpprof/record/recorder.py",
        "                self._end_early(self._steps)\n            warn_once(",
        "                pass\n            warn_once(",
        (f"{_SAVING}::test_where_the_step_log_fails_recording_has_ended_and_the_training_has_not",),
    ),
    Defect(
        "a failure of our own: the training was killed, it says",
        "mpprof/record/recorder.py",
        'if self._steps is not None and self.on and "recording" in self.absent:',
        "if False:",
        (f"{_SAVING}::test_a_failure_of_our_own_ends_the_recording_in_its_log",),
    ),
    Defect(
        "samples that cannot be written: recording ends",
        "mpprof/record/recorder.py",
        "if path.name == formats.HARDWARE_FILE:",
        "if False:",
        (f"{_SAVING}::test_samples_that_cannot_be_written_cost_no_step",),
    ),
    Defect(
        "ten thousand fits: 1.2 s for the last, 39 ms for the first",
        "mpprof/record/recorder.py",
        "        del fits[MOST_FITS_HELD - 1 :]",
        "        pass",
        (f"{_SAVING}::test_a_fit_writes_no_facts_of_the_fits_before_it",),
    ),
    Defect(
        "facts of fits between the first and the last: not read",
        "mpprof/store/records.py",
        'elif kind == "fit_facts" and len(log.fits) < limits.MOST_FITS:',
        "elif False:",
        (
            f"{_SAVING}::test_a_fit_writes_no_facts_of_the_fits_before_it",
            f"{_SAVING}::test_of_a_run_killed_in_its_fiftieth_fit_all_fits_are_known",
        ),
    ),
    Defect(
        "an error's text in run.json: the user's home and name",
        "mpprof/record/recorder.py",
        "                error = pattern.sub(instead, error)",
        "                pass",
        (f"{_SAVING}::test_an_errors_text_names_neither_the_users_directories_nor_the_user",),
    ),
    Defect(
        "names with blanks or other letters, escaped or not: in a bundle's records",
        "mpprof/report/redact.py",
        "        for pattern, kind in _TEXTS:",
        "        for pattern, kind in ():",
        (
            f"{_PRIVATE}::test_nothing_of_a_path_is_in_any_byte_of_a_bundle",
            f"{_PRIVATE}::test_texts_that_name_somebody",
        ),
    ),
    Defect(
        "names with blanks or other letters, escaped or not: in a bundle's trace",
        "mpprof/report/redact.py",
        "for pattern in (_HOME, _LINK, *self._path_bytes, _ADDRESS, *self._user_bytes):",
        "for pattern in ():",
        (
            f"{_PRIVATE}::test_nothing_of_a_path_is_in_any_byte_of_a_bundle",
            f"{_PRIVATE}::test_the_runs_own_directory_and_the_users_are_known_wherever_they_lie",
        ),
    ),
    Defect(
        "a link out of a log directory: /etc/passwd in a bundle",
        "mpprof/regular.py",
        "    if not real.is_relative_to(top):\n        return None\n",
        "    if not real.is_relative_to(top):\n        return open_regular(real)\n",
        (f"{_PRIVATE}::test_a_linked_directory_of_sessions_or_records_is_not_packed",),
    ),
    Defect(
        "a file among the records that is another program's: in a bundle",
        "mpprof/cli/bundle_writing.py",
        'if text and not (isinstance(first, dict) and str(first.get("schema")).startswith("mpprof.")):',
        "if False:",
        (f"{_PRIVATE}::test_only_records_of_mpprof_are_packed",),
    ),
    Defect(
        "a file that only begins as a trace: in a bundle",
        "mpprof/cli/bundle_writing.py",
        "        traces.read(path)\n",
        "        pass\n",
        (f"{_PRIVATE}::test_a_file_that_only_begins_as_a_trace_is_not_packed",),
    ),
    Defect(
        "1,000 members 60 levels deep: 11 s for a bundle of 0.34 MB",
        "mpprof/cli/bundle_reading.py",
        'if len(members) > MOST_MEMBERS or any(member.filename.count("/") > DEEPEST for member in members):',
        "if False:",
        (f"{_LIMITS}::test_too_many_or_too_deep_members_are_refused_before_any_is_unpacked",),
    ),
    Defect(
        "files of a bundle that nothing reads: unpacked",
        "mpprof/cli/bundle_reading.py",
        "if not _is_read(PurePosixPath(member.filename)):",
        "if False:",
        (f"{_LIMITS}::test_what_nothing_reads_is_not_unpacked",),
    ),
    Defect(
        "damaged LZMA or bzip2 in a bundle: a traceback",
        "mpprof/cli/bundle_reading.py",
        "if any(member.compress_type not in _PACKINGS for member in members):",
        "if False:",
        (f"{_LIMITS}::test_a_damaged_member_of_another_packing_is_one_clear_error",),
    ),
    Defect(
        "no room for what a bundle holds: a traceback",
        "mpprof/cli/bundle_reading.py",
        "            if error.filename == str(path):\n",
        "            if True:\n",
        (f"{_LIMITS}::test_without_room_for_what_is_unpacked_one_error_says_what_to_do",),
    ),
    Defect(
        "a bundle's unpacked folder: left after SIGTERM or SIGHUP",
        "mpprof/own_folder.py",
        "ends = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]",
        "ends = []",
        (f"{_LIMITS}::test_a_process_that_is_asked_to_end_removes_what_it_has_unpacked",),
    ),
    Defect(
        "a bundle's unpacked folder: left for ever after SIGKILL",
        "mpprof/own_folder.py",
        "        _sweep(Path(made).parent, prefix)\n",
        "",
        (f"{_LIMITS}::test_what_a_killed_process_has_left_goes_with_the_next_and_a_living_ones_stays",),
    ),
    Defect(
        "directories of sessions, named after people and hosts: in a bundle's names",
        "mpprof/cli/bundle_writing.py",
        "return {session: _SESSION.format(number) for number, session in enumerate(found, 1)}",
        "return {session: session.relative_to(run.path).as_posix() for session in found}",
        (f"{_PRIVATE}::test_the_names_of_sessions_and_hosts_are_in_no_name_of_a_bundle",),
    ),
    Defect(
        "the host after which a trace is named: a bundle's name and directory",
        "mpprof/cli/bundle_writing.py",
        "if not run.path.is_dir():",
        "if False:",
        (f"{_PRIVATE}::test_the_host_that_a_trace_is_named_after_is_in_no_name_of_a_bundle",),
    ),
    Defect(
        "the process that looks at a model: lives on without its bounds when its parent is killed",
        "mpprof/record/facts/described.py",
        '    child.end_with_parent(request["parent"])\n',
        "",
        (f"{_ENDS}::test_what_looks_at_a_model_ends_with_a_process_that_is_killed",),
    ),
    Defect(
        "the directory for what is said of a model: left after SIGTERM",
        "mpprof/own_folder.py",
        "ends = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]",
        "ends = []",
        (f"{_ENDS}::test_what_looks_at_a_model_ends_with_a_process_that_is_asked_to_end",),
    ),
    Defect(
        "paths behind an option or a bracket, with apostrophes, commas or escaped blanks: in a bundle's records",
        "mpprof/report/redact.py",
        '(_HOME_TEXT, "path"), (_PATH, "path"), (_RELATIVE, "path"),',
        '(_PATH, "path"),',
        (f"{_PRIVATE}::test_texts_that_name_somebody",),
    ),
    Defect(
        "a mpprof.py in the current directory: run by a survey",
        "mpprof/child.py",
        'return [python or sys.executable, "-P", *arguments]',
        "return [python or sys.executable, *arguments]",
        (f"{_SURVEY}::test_modules_in_the_current_directory_are_not_run",),
    ),
    Defect(
        "a memory snapshot of PyTorch: an opcode that imports",
        "mpprof/traces/torch_memory/pickled.py",
        '                raise NotPlainError(f"the opcode {code:#04x} at byte {self.at - 1} is not of plain data")',
        "                import pickle\n\n                self.stack = [pickle.loads(data)]\n                return",
        (f"{_SNAPSHOTS}::test_nothing_in_a_pickle_runs",),
    ),
    Defect(
        "a memory snapshot of PyTorch: lists in one another and a memo without end",
        "mpprof/traces/torch_memory/pickled.py",
        "        if self.left < 0:",
        "        if False:",
        (f"{_SNAPSHOTS}::test_what_asks_for_memory_gets_none",),
    ),
    Defect(
        "a memory snapshot of PyTorch: what the ring of events has lost",
        "mpprof/traces/torch_memory/snapshot.py",
        "        made.events[:0] = older\n",
        "",
        (f"{_SNAPSHOTS}::test_what_the_ring_of_events_has_lost_is_told_by_the_blocks_in_use",),
    ),
    Defect(
        "a first step that tries out algorithms: judged as a step",
        "mpprof/analysis/steps/boundaries.py",
        "        found = _without_tuning(trace, kernels, attempt)",
        "        found = attempt",
        (
            f"{_TUNING}::test_such_a_step_is_not_judged",
            f"{_TUNING}::test_where_there_is_no_other_there_is_no_step",
        ),
    ),
    Defect(
        "what an algorithm that was tried out worked in: called a gradient",
        "mpprof/analysis/memory/block_kinds.py",
        "_scratch(trace, blocks) | _tried_out(trace, blocks)",
        "_scratch(trace, blocks)",
        (f"{_TUNING}::test_what_an_algorithm_worked_in_is_no_gradient",),
    ),
    Defect(
        "the step log's descriptor closed and used again: lines in a file of the user's",
        "mpprof/store/writing.py",
        "        self._check()\n",
        "",
        (
            f"{_STORE}::test_lines_go_into_their_own_file_where_the_descriptor_was_closed_and_used_again",
            f"{_STORE}::test_recording_ends_where_another_file_has_the_name",
        ),
    ),
    Defect(
        "a layer's name with an escape sequence: printed by the callback",
        "mpprof/api/auditing.py",
        "    return [words.plain(line) for line in lines]",
        "    return lines",
        (f"{_AUDIT}::test_no_name_of_a_layer_moves_the_cursor",),
    ),
    Defect(
        "650 idle connections: no reader is let in",
        "dashboards/mpprof_dashboards/serve.py",
        "    if too_many > 0:",
        "    if False:",
        (f"{_SERVER}::test_neither_do_connections_that_somebody_opens_and_leaves",),
    ),
    Defect(
        "a bundle of thousands of runs: all unpacked and listed",
        "mpprof/cli/bundle_reading.py",
        "    if len({name.parts[0] for name in read}) > 1:",
        "    if False:",
        (f"{_LIMITS}::test_more_than_a_run_holds_is_not_unpacked",),
    ),
    Defect(
        "a file that becomes a link after it was looked at: packed into a bundle",
        "mpprof/cli/bundle_writing.py",
        "return open_below(run.path, path) if run.path.is_dir() else open_regular(path)",
        'return path.open("rb") if path.resolve().is_relative_to(run.path.resolve()) else None',
        (f"{_PRIVATE}::test_what_becomes_a_link_once_it_was_looked_at_is_not_followed",),
    ),
    Defect(
        "what follows <cwd>, <logdir>, ~ or a partition's key, copied addresses, escaped slashes: in a bundle's records",
        "mpprof/report/redact.py",
        ' (_BELOW, "path"), (_COPIED, "path"),',
        "",
        (f"{_PRIVATE}::test_texts_that_name_somebody",),
    ),
    Defect(
        "a bundle's manifest of LZMA, damaged: a traceback",
        "mpprof/cli/bundle_reading.py",
        """    members = archive.infolist()
    if any(member.compress_type not in _PACKINGS for member in members):
        raise UnreadableError("is packed as no bundle is (LZMA or bzip2)", where=str(path), next=_UNPACK)
    manifest = _manifest(archive, path)
""",
        """    manifest = _manifest(archive, path)
    members = archive.infolist()
    if any(member.compress_type not in _PACKINGS for member in members):
        raise UnreadableError("is packed as no bundle is (LZMA or bzip2)", where=str(path), next=_UNPACK)
""",
        (f"{_LIMITS}::test_a_damaged_member_of_another_packing_is_one_clear_error",),
    ),
    Defect(
        "a bundle written to /dev/stdout: a line of text behind the zip",
        "mpprof/cli/bundle.py",
        "if output.is_stdout(target):",
        "if False:",
        (f"{_OUTPUT}::test_a_bundle_on_standard_output_is_the_zip_and_nothing_more",),
    ),
    Defect(
        "a sparse record of 20 GB: all of it in memory for a bundle",
        "mpprof/cli/bundle_writing.py",
        "if os.fstat(file.fileno()).st_size > limit:",
        "if False:",
        (f"{_LIMITS}::test_a_record_without_an_end_is_left_out",),
    ),
    Defect(
        "the line at a fit's end: all steps of all fits before it are read",
        "mpprof/record/callback.py",
        "session.summary(step_time=step_time and news)",
        "session.summary(step_time=step_time)",
        (f"{_SAVING}::test_a_fit_that_tells_nothing_new_reads_no_steps_of_the_fits_before_it",),
    ),
    Defect(
        "a clock that breaks: a warning each step",
        "mpprof/record/callback.py",
        "        if self._failed:  # a batch hook that Keras still holds\n",
        "        if False:\n",
        ("tests/record/test_fit_tensorflow.py::test_a_clock_that_breaks_in_the_midst_is_said_once",),
    ),
    Defect(
        "the callback in evaluate or predict alone: silent",
        "mpprof/record/callback.py",
        '        tell([f"mpprof: this {method} is not recorded: the callback records fit alone."])',
        "        pass",
        (
            "tests/record/test_fit_tensorflow.py::test_an_evaluate_or_predict_alone_says_that_nothing_is_recorded",
        ),
    ),
    Defect(
        "a redirect from a public to a private address: followed",
        "mpprof/traces/remote/errors.py",
        "        elif via[0]:",
        "        elif False:",
        (f"{_REMOTE}::test_a_redirect_from_a_public_to_a_private_address_is_not_followed",),
    ),
    Defect(
        "a byte each half second: a fetch without end",
        "mpprof/traces/remote/fetch.py",
        "if total - before < errors.LEAST_BYTES_PER_S * took_s:",
        "if False:",
        (f"{_REMOTE}::test_a_file_that_comes_too_slowly_is_given_up",),
    ),
    Defect(
        "a cache that another user, or every user, may write to: shows what was never read",
        "mpprof/traces/cache/folder.py",
        "if root is not None and (why := _others(root)):",
        "if False:",
        (f"{_CACHE}::test_what_another_user_could_have_put_there_is_not_shown",),
    ),
    Defect(
        "a full stderr: 1, as a check that failed, for what cannot be read and for a bundle that was written",
        "mpprof/cli/output.py",
        "    except OSError:\n        sys.stderr = nobody()\n",
        "    except NotImplementedError:\n        sys.stderr = nobody()\n",
        (f"{_COMMANDS}::test_the_exit_code_does_not_depend_on_who_reads_stderr",),
    ),
    Defect(
        "a full stdout behind bundle: a traceback",
        "mpprof/cli/bundle.py",
        "output.write(done, None)",
        "print(done)",
        (f"{_COMMANDS}::test_a_full_disk_behind_stdout_is_one_line",),
    ),
    Defect(
        "closing the first file of a directory fails: no step is kept",
        "mpprof/store/writing.py",
        "with contextlib.suppress(OSError):  # the name, which is the claim, is there",
        "with contextlib.nullcontext():",
        ("tests/record/test_faults.py::test_a_file_that_cannot_be_closed_has_all_lines",),
    ),
    Defect(
        "a Host with an open bracket: answered as localhost",
        "dashboards/mpprof_dashboards/security.py",
        'if header.startswith("[") and "]" in header:',
        'if header.startswith("["):',
        (f"{_SERVER}::test_hosts_that_are_none",),
    ),
    Defect(
        "a file that no survey wrote, given to --resume: rows are added to it",
        "mpprof/report/runs/journal.py",
        "if not _BEGIN.startswith(file.read(len(_BEGIN))):",
        "if False:",
        (f"{_SURVEY}::test_a_file_that_no_survey_wrote_is_refused_and_stays_as_it_is",),
    ),
    Defect(
        "a worker's folder spelled in two ways: two members of one name in a bundle",
        "mpprof/store/run_folders.py",
        're.compile("worker-[1-9][0-9]{0,7}")',
        're.compile("worker-[0-9]{1,8}")',
        (f"{_PRIVATE}::test_a_folder_named_almost_like_a_workers_is_not_packed",),
    ),
    Defect(
        "a saved model without an optimizer, to be forecast: AttributeError",
        "mpprof/forecasts/child.py",
        'getattr(saved, "optimizer", None) is not None',
        "saved.optimizer is not None",
        ("tests/forecasts/test_compiling.py::test_a_saved_model_that_is_not_compiled_cannot_be_forecast",),
    ),
    Defect(
        "a Sequential of thousands of layers in a saved model: its graph made anew with each",
        "mpprof/record/facts/saved_model.py",
        "len(self._layers) >= layers:",
        "True:",
        (f"{_MODELS}::test_the_graph_of_many_layers_is_made_once",),
    ),
    Defect(
        "models and wrappers in one another without end: a minute for 70 kB",
        "mpprof/record/facts/model_vetting.py",
        "if models > DEEPEST_LAYER or objects > DEEPEST_OBJECT:",
        "if False:",
        (f"{_MODELS}::test_layers_that_lie_in_one_another_too_deep",),
    ),
    Defect(
        "layers in a chain longer than Python's stack: RecursionError",
        "mpprof/record/facts/described.py",
        "    sys.setrecursionlimit(_LONGEST_CHAIN)\n",
        "",
        (f"{_MODELS}::test_a_chain_longer_than_pythons_stack",),
    ),
    Defect(
        "a log directory that cannot be made: the script is said to call no fit",
        "mpprof/launch/script.py",
        "elif not self._trained:",
        "else:",
        ("tests/launch/test_scripts.py::test_a_log_directory_that_cannot_be_made_is_why_there_is_no_report",),
    ),
    Defect(
        "help into a full disk: exit code 0",
        "mpprof/cli/__init__.py",
        "if file is sys.stdout:",
        "if False:",
        (f"{_ARGUMENTS}::test_help_that_cannot_be_written_is_an_error",),
    ),
    Defect(
        "an empty name: the current directory and all below it",
        "mpprof/cli/__init__.py",
        'if not arg_string and (action.type is Path or action.metavar == "MODEL"):',
        "if False:",
        (f"{_ARGUMENTS}::test_an_empty_name_is_not_the_current_directory",),
    ),
    Defect(
        "one list as the events of every device in a memory snapshot: gone through for each",
        "mpprof/traces/torch_memory/snapshot.py",
        "return _dicts(kept)",
        "return _dicts(found)",
        (f"{_SNAPSHOTS}::test_a_list_that_stands_in_many_places_is_not_gone_through_for_each",),
    ),
    Defect(
        "a category of its own for each event of a memory snapshot: its stack read again for each",
        "mpprof/traces/torch_memory/snapshot.py",
        "type(category) is str and category in CATEGORIES",
        "type(category) is str",
        (f"{_SNAPSHOTS}::test_a_category_that_pytorch_does_not_have_makes_no_stack_of_its_own",),
    ),
    Defect(
        "a stack of a million frames that share one long name: hours",
        "mpprof/traces/torch_memory/snapshot.py",
        "frames[:_MOST_FRAMES] if",
        "frames if",
        (f"{_SNAPSHOTS}::test_a_stack_is_as_deep_as_python_goes_and_a_name_as_long_as_others",),
    ),
    Defect(
        "four levels of fusions that all call the next one: minutes for a mebibyte",
        "mpprof/traces/common/hlo.py",
        "> module.within:",
        "> 1 << 60:",
        ("tests/traces/test_hlo.py::test_computations_that_call_each_other_from_many_places",),
    ),
    Defect(
        "a saved model whose description is packed with LZMA or bzip2: errors that nobody expects",
        "mpprof/record/facts/model_file.py",
        "compress_type not in _PACKINGS:",
        "compress_type is None:",
        (f"{_MODELS}::test_a_model_that_is_packed_as_none_is",),
    ),
    Defect(
        "a listing without an end over HTTP: gigabytes of memory",
        "mpprof/traces/remote/errors.py",
        "if len(found) > _LONGEST_PAGE:",
        "if False:",
        (f"{_REMOTE}::test_a_listing_longer_than_any_is_given_up",),
    ),
)


def run(tests: tuple[str, ...], without: Defect | None = None) -> subprocess.CompletedProcess[str]:
    """Run these tests of a copy of the project; a mend that is to be taken out stands there no more."""
    with tempfile.TemporaryDirectory(prefix="mpprof-defects-") as folder:
        copy = Path(folder)
        for name in ("mpprof", "dashboards", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("sample_traces", "pyproject.toml", "README.md"):
            (copy / name).symlink_to(ROOT / name)
        if without is not None:
            _take_out(copy, without)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        path = os.pathsep.join((str(copy), str(copy / "dashboards")))
        return subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )  # fmt: skip


def _take_out(copy: Path, defect: Defect) -> None:
    file = copy / defect.file
    file.write_text(file.read_text().replace(defect.mend, defect.without))
    if file.name == "walk_reference.py":  # without its compiled twin it is what reads
        for compiled in file.parent.glob("_walk*.so"):
            compiled.unlink()


if __name__ == "__main__":
    for defect in DEFECTS:
        if " ".join(sys.argv[1:]) in defect.name:
            for test in defect.tests:
                done = run((test,), defect)
                last = (done.stdout.strip().splitlines() or done.stderr.splitlines())[-1]
                print(f"{defect.name}\n    {test}: exit {done.returncode}, {last}", flush=True)
