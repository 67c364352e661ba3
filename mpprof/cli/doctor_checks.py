"""What `mpprof doctor` looks at. No check imports a framework; each says what its absence will cost."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from mpprof._version import __version__

Status = Literal["ok", "info", "missing"]

NVIDIA_PARAMS = Path("/proc/driver/nvidia/params")
SELF_STATUS = Path("/proc/self/status")
CAP_SYS_ADMIN = 1 << 21  # linux/capability.h
_CUPTI_MAJORS = (13, 12, 11)
_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "TF_ENABLE_AUTO_MIXED_PRECISION", "TF_XLA_FLAGS",
    "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH", "JAX_DEFAULT_MATMUL_PRECISION",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `effect`: what will be missing because of it; `next`: how to get it."""

    name: str
    status: Status
    value: str
    effect: str = ""
    next: str = ""


def checks() -> tuple[Check, ...]:
    """Return all checks, in the order in which they matter."""
    gpus = _gpus()
    return (
        Check("mpprof", "ok", f"{__version__}, Python {platform.python_version()}, {platform.machine()}"),
        *gpus,
        _cupti(any(check.status == "ok" for check in gpus)),
        permission(NVIDIA_PARAMS, SELF_STATUS),
        *_frameworks(),
        *_keras(),
        *_workers(os.environ.get("TF_CONFIG")),
        *_environment(),
        _walk(),
        _page(),
        _temporary(),
        _cache(),
        _addresses(),
    )


def _version(*names: str) -> str | None:
    """Return the version of the first of these distributions that is installed."""
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _gpus() -> list[Check]:
    try:
        import pynvml

        pynvml.nvmlInit()
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        found = [_gpu(pynvml, index, handle, driver) for index, handle in enumerate(handles)]
    except Exception as error:  # noqa: BLE001 - no NVML, no driver, no permission: each raises its own
        return [
            Check(
                "GPU", "missing", f"no NVIDIA GPU seen ({error})",
                "No training here can use Tensor Cores; reports on runs from elsewhere need no GPU.",
            )
        ]  # fmt: skip
    return found or [Check("GPU", "missing", f"driver {driver}, but no GPU")]


def _gpu(nvml: Any, index: int, handle: Any, driver: str) -> Check:
    from mpprof.analysis.kernels import device_peaks
    from mpprof.model.device import DeviceFacts

    name = _text(nvml.nvmlDeviceGetName(handle))
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    peaks = device_peaks.peaks(
        DeviceFacts("gpu", name=name, vendor="nvidia", compute_capability=(major, minor))
    )
    value = f"{name}, compute capability {major}.{minor}, driver {driver}"
    if peaks is None:
        effect = "Its peak rates are not known: expected speedups will be missing."
        return Check(f"GPU {index}", "info", value, effect)
    if not peaks.has_matrix_units:
        effect = "It has no Tensor Cores: mixed precision can save memory here, but hardly time."
        return Check(f"GPU {index}", "info", value, effect)
    return Check(f"GPU {index}", "ok", f"{value}, has Tensor Cores")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cupti(has_gpu: bool) -> Check:
    """Return whether the library that records kernels can be loaded; frameworks bring one as a Python
    package."""
    packaged = [_version(f"nvidia-cuda-cupti-cu{major}") for major in _CUPTI_MAJORS]
    for major in _CUPTI_MAJORS:
        try:
            ctypes.CDLL(f"libcupti.so.{major}")
        except OSError:
            continue
        return Check("CUPTI", "ok", f"libcupti.so.{major}")
    if version := next((version for version in packaged if version), None):
        return Check("CUPTI", "ok", f"nvidia-cuda-cupti {version}")
    if not has_gpu:
        return Check("CUPTI", "info", "not found; without a GPU there is nothing for it to record")
    return Check(
        "CUPTI", "missing", "libcupti is not found",
        "Traces will hold no kernels.",
        "pip install 'tensorflow[and-cuda]', or add CUDA's extras/CUPTI/lib64 to LD_LIBRARY_PATH.",
    )  # fmt: skip


def permission(params: Path, status: Path) -> Check:
    """Return whether this process may profile the GPU: the driver's setting, or CAP_SYS_ADMIN.

    NVIDIA, "ERR_NVGPUCTRPERM: permission issue with performance counters".
    """
    name = "profiling permission"
    try:
        text = params.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Check(name, "info", "no NVIDIA driver here to ask")
    setting = next((line for line in text.splitlines() if line.startswith("RmProfilingAdminOnly:")), "")
    if setting.partition(":")[2].strip() != "1":
        return Check(name, "ok", "everybody may profile" if setting else "the driver does not restrict it")
    if _capabilities(status) & CAP_SYS_ADMIN:
        return Check(name, "ok", "administrators only, and this process is one")
    return Check(
        name, "missing", "administrators only (RmProfilingAdminOnly: 1)",
        "Traces may hold no kernels (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES).",
        "As root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
        "/etc/modprobe.d/nvidia-profiling.conf and reboot; in a container: docker run --cap-add=SYS_ADMIN.",
    )  # fmt: skip


def _capabilities(status: Path) -> int:
    try:
        lines = status.read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def _frameworks() -> list[Check]:
    found = {
        "keras": _version("keras"),
        "tensorflow": _version("tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-rocm"),
        "jax": _version("jax"),
        "torch": _version("torch"),
    }
    backends = [name for name in ("tensorflow", "jax", "torch") if found[name]]
    checks = [Check(name, "ok", version) for name, version in found.items() if version]
    if not found["keras"]:
        advice = "pip install keras"
        checks.append(Check("keras", "missing", "not installed", "No training can be recorded here.", advice))
    if not backends:
        effect = "Keras has nothing to compute with; reports on runs from elsewhere need none."
        checks.append(
            Check("backend", "missing", "none installed", effect, "pip install 'mpprof[tensorflow]'")
        )
    if found["tensorflow"] and not _version("tensorflow", "tf-nightly", "tensorflow-rocm"):
        checks.append(Check("tensorflow build", "info", "tensorflow-cpu", "It cannot use a GPU."))
    if found["jax"] and not any(_version(f"jax-cuda{major}-plugin") for major in _CUPTI_MAJORS):
        checks.append(Check("jax build", "info", "no CUDA plugin", "JAX cannot use an NVIDIA GPU."))
    if found["torch"] and found["torch"].endswith("+cpu"):
        checks.append(Check("torch build", "info", "for CPUs", "torch cannot use a GPU."))
    return checks


def _keras() -> list[Check]:
    """Return the backend and policy as Keras will read them: the environment first, then keras.json."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    path = Path(home) / "keras.json"
    settings: Any = {}
    problem = ""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problem = f"{path} does not exist: Keras' defaults"
    except (OSError, ValueError) as error:
        problem = f"{path} cannot be read ({error}): Keras' defaults"
    if not isinstance(settings, dict):
        settings, problem = {}, f"{path} holds no settings: Keras' defaults"
    by_environment = os.environ.get("KERAS_BACKEND")
    backend = by_environment or settings.get("backend") or "tensorflow"
    origin = "KERAS_BACKEND" if by_environment else problem or str(path)
    # keras.json can set floatx only; the global policy starts from it.
    policy = settings.get("floatx") or "float32"
    effect = (
        ""
        if "mixed" in str(policy)
        else "Mixed precision is switched on in the training script, or not at all."
    )
    return [
        Check("keras backend", "ok", f"{backend} ({origin})"),
        Check("keras policy", "info", f"{policy} ({problem or path})", effect),
    ]


def _workers(config: str | None) -> list[Check]:
    """Return the cluster that TensorFlow reads from TF_CONFIG, where it is set, with what Keras 3 cannot do
    with it."""
    if config is None:
        return []
    name = "TF_CONFIG"
    try:
        given = json.loads(config)
        cluster, task = given["cluster"], given.get("task", {})
        count = sum(len(cluster.get(category, ())) for category in ("chief", "worker"))
        workers = "1 worker" if count == 1 else f"{count} workers"
        value = f"{workers}, this one is {task.get('type')} {task.get('index')}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return [
            Check(
                name, "missing", f"not a cluster ({type(error).__name__}: {error})",
                "TensorFlow's MultiWorkerMirroredStrategy cannot start.",
                'Set it to {"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.',
            )
        ]  # fmt: skip
    from mpprof.diagnosis.audit import NO_WORKERS

    keras = _version("keras")
    if count < 2 or keras is None or keras.startswith("2."):
        return [Check(name, "info", value)]
    how = "" if _version("tf_keras") else "pip install tf_keras"
    return [Check(name, "info", value, f"{NO_WORKERS}.", how)]


def _environment() -> list[Check]:
    """Return only the variables that change what a step costs or a trace shows, and only those that are
    set."""
    return [Check(name, "info", repr(os.environ[name])) for name in _ENVIRONMENT if name in os.environ]


def _walk() -> Check:
    from mpprof.traces.common import walk

    if walk.COMPILED:
        return Check("trace reader", "ok", "compiled")
    return Check(
        "trace reader", "missing", "plain Python",
        "Large traces take minutes, not seconds.",
        "Install a C compiler and reinstall mpprof.",
    )  # fmt: skip


def _page() -> Check:
    versions = {name: _version(name) for name in ("dash", "plotly", "dash-mantine-components")}
    if absent := [name for name, version in versions.items() if version is None]:
        return Check(
            "page", "missing", f"not installed: {', '.join(absent)}", "`mpprof serve` cannot start.",
            f"pip install {' '.join(absent)}",
        )  # fmt: skip
    return Check("page", "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _temporary() -> Check:
    """Return where bundles are unpacked; beside the cache nothing else is written outside the log
    directory."""
    folder = tempfile.gettempdir()
    if not os.access(folder, os.W_OK):
        return Check("temporary files", "missing", f"{folder} cannot be written", "Bundles cannot be read.")
    from mpprof.model.quantities import format_bytes

    free = format_bytes(shutil.disk_usage(folder).free)
    return Check("temporary files", "ok", f"{folder}, {free} free" if sys.platform != "win32" else folder)


def _cache() -> Check:
    """Return where what was read of JSON and SQLite traces is kept, and what was fetched from elsewhere."""
    from mpprof.traces.cache.folder import folder

    root = folder()
    effect = "JSON and SQLite traces are read again each time, and remote traces fetched again."
    if root is None:
        return Check("cache", "info", "off", effect)
    existing = next(parent for parent in (root, *root.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Check(
            "cache", "missing", f"{root} cannot be written", effect, "Set MPPROF_CACHE to another place."
        )
    return Check("cache", "ok", f"{root} (xplane traces need no cache)")


def _addresses() -> Check:
    """Return which addresses can be read in place of paths."""
    packages = {"https": "aiohttp", "s3": "s3fs", "gs": "gcsfs"}
    known = [f"{scheme}://" for scheme, package in packages.items() if _version(package)]
    lacking = [scheme for scheme, package in packages.items() if not _version(package)]
    if not lacking:
        return Check("addresses", "ok", ", ".join(known))
    return Check(
        "addresses", "info", ", ".join(known) or "none",
        f"Not read: {', '.join(f'{scheme}://' for scheme in lacking)}.",
        f"pip install {' '.join(packages[scheme] for scheme in lacking)}",
    )  # fmt: skip
