"""Reading a kernel's name: its function, the words in it, the types in it. Knows no library.

Three spellings arrive: plain (`ampere_sgemm_128x64_tn`), demangled C++ (`void f<float>(float*)`, as CUPTI,
Nsight and Kineto each write it) and mangled C++ (`_ZN…`, as some collectors leave it). All become one
`Name`. Every scan is linear and stops at `LONGEST` characters, so a hostile name costs little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mpprof.model.frozen import frozen
from mpprof.model.kernels import Precision

LONGEST = 16_384
"""Characters of a name that are read. The longest seen in real traces have about 5,000."""

LONGEST_HEAD = 512
"""Characters of the function's own name that are read; the longest seen have about 300."""

_NOISE = re.compile(
    r"\(anonymous namespace\)::|<unnamed>::|\[clone \.kd\]|\.kd$|\(\s*(?:int|bool|unsigned int)\s*\)"
)
_WORD = re.compile(r"[a-z_]\w*+(?!::)")  # a namespace is no type
_RETURN_TYPE = re.compile(r"^(?:static |inline |__global__ )*(?:void|int|auto) ")
_HEAD_END = re.compile(r"[<(\[{]")

_TYPES: dict[str, Precision] = {
    **dict.fromkeys(
        ("half", "__half", "__half2", "half2", "half_t", "float16", "float16_t", "_float16", "fp16", "f16"), "fp16"
    ),
    **dict.fromkeys(
        ("bf16", "bfloat16", "bfloat16_t", "nv_bfloat16", "__nv_bfloat16", "__nv_bfloat162", "hip_bfloat16", "bf16_t", "bhalf_t", "__hip_bfloat16"),
        "bf16",
    ),
    **dict.fromkeys(("float", "f32", "fp32", "float32", "float2", "float4", "dt_float"), "fp32"),
    **dict.fromkeys(("double", "f64", "fp64", "float64", "double2"), "fp64"),
    **dict.fromkeys(("tfloat32_t", "tf32", "tfloat32", "tf32f32", "f32tf32"), "tf32"),
    **dict.fromkeys(
        (
            "fp8", "f8", "e4m3", "e5m2", "float_e4m3_t", "float_e5m2_t", "float8_e4m3fn", "float8_e5m2",
            "float8_e4m3fnuz", "float8_e5m2fnuz", "__nv_fp8_e4m3", "__nv_fp8_e5m2", "__nv_fp8_storage_t", "fp8_t",
            "fp8_e4m3", "fp8_e5m2", "float_ue8m0_t",
        ),
        "fp8",
    ),
    **dict.fromkeys(("int8", "int8_t", "s8", "i8"), "int8"),
    **dict.fromkeys(("fp4", "f4", "e2m1", "float_e2m1_t", "nvfp4", "mxfp4", "__nv_fp4_e2m1", "nv_float4_t"), "fp4"),
}  # fmt: skip
"""Words that name a type, in lower case, as CUDA, HIP, CUTLASS, Eigen, TensorFlow and PyTorch spell them."""

_ENGLISH = frozenset(("half", "half2", "float", "float2", "float4", "double", "double2"))
_CODES = {word: precision for word, precision in _TYPES.items() if word not in _ENGLISH}
"""Types as they stand inside longer words (`volta_fp16_s884gemm`). `half` does not: `round_half_to_even`."""


@frozen
class Name:
    """A kernel's name, ready to be matched: lower case, without return type and anonymous namespaces.

    `head` is the function alone, without template arguments and parameters; it is what says most. `function`
    is its last part as it was written: where capitals begin a word is known from it alone.
    """

    text: str
    head: str
    function: str

    def types(self) -> tuple[Precision, ...]:
        """Return the number types that the name mentions, in order of first appearance; empty: none."""
        return types_in(self.text)


@frozen
class Card:
    """What is known of the card when a name is judged; `None` and "unknown": nothing."""

    compute_capability: tuple[int, int] | None = None
    vendor: str = "unknown"

    def at_least(self, major: int, minor: int = 0) -> bool:
        """Return whether the card is of this generation or later; an unknown generation counts as yes."""
        return self.compute_capability is None or self.compute_capability >= (major, minor)


def parse(name: str) -> Name:
    """Read a name in any of the three spellings. Never raises; an empty name gives empty parts."""
    text = name[:LONGEST].strip()
    if text.startswith(("_Z", "__Z")):
        text = readable(text)
    text = _NOISE.sub("", text).strip()
    if text.startswith("std::enable_if<"):
        # The return type of an SFINAE function stands before its name.
        _, found, rest = text.partition(">::type ")
        text = rest if found else text
    text = _RETURN_TYPE.sub("", text)
    end = _HEAD_END.search(text, 1)  # "[CUDA memset]" begins with one
    head = text[: min(end.start(), LONGEST_HEAD) if end else LONGEST_HEAD]
    return Name(text.lower(), head.lower(), head.rsplit("::", 1)[-1])


_CLOSES = {">": "<", ")": "(", "]": "[", "}": "{"}
_BRACKETS = r"operator\s*[<>()\[\]=-]+|->|\.\.\.$|[<>()\[\]{}]"


def is_cut(name: str) -> bool:
    """Return whether a collector cut the end of this name off: brackets stay open, or it ends with dots.

    A `>` without its `<` inside round brackets is a comparison. A name without brackets shows no cut.
    """
    if len(name) > LONGEST or name.endswith("…"):
        return True
    name = name.strip()
    if name.startswith(("_Z", "__Z")):
        return _is_cut_mangled(name)
    open_: list[str] = []
    for found in re.finditer(_BRACKETS, name):
        mark = found.group()
        if mark == "...":
            return True
        if mark in ("<", "(", "[", "{"):
            open_.append(mark)
        elif (opening := _CLOSES.get(mark)) is not None:
            if mark != ">":  # comparisons inside are no brackets
                while open_ and open_[-1] != opening:
                    open_.pop()
            if open_ and open_[-1] == opening:
                open_.pop()
    return bool(open_)


_CAST = r"\((?:unsigned |signed )?[A-Za-z_][\w:]*\)(?=-?\d)"
_SUFFIX = r"(?i)(?<=\d)(?:ull|ul|u|ll|l)\b"
_NAMESPACE = r"<unnamed>::|\(anonymous namespace\)::|\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_~])"


def spelled(name: str) -> str:
    """Return one spelling for the names that different tools give to one kernel.

    Nsight Compute writes `(bool)1` or `1` and `const float *` where CUPTI writes `true` and `float const*`,
    names the parameters by their template's types, and leaves out some namespaces, not always the same
    (`native::` or `at::` for `at::native::`). Return type, parameters, spaces, namespaces, casts and suffixes
    of numbers are left out; two kernels that differ in nothing else share a spelling.
    """
    text = re.sub(_NAMESPACE, "", name[:LONGEST].strip())
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    text = _RETURN_TYPE.sub("", re.sub(_SUFFIX, "", re.sub(_CAST, "", text)))
    return re.sub(r"\bconst\b|(?<=[<,])\s*void(?= [A-Za-z_])|\s+", "", text[: _parameters(text)])


def _parameters(text: str) -> int:
    """Return where the parameter list of a readable name begins; the name's length where it has none."""
    depth, at = 0, 0
    while at < len(text):
        letter = text[at]
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif letter == "(" and depth <= 0:
            return at
        at += 1
    return len(text)


def types_in(text: str) -> tuple[Precision, ...]:
    """Return the number types named by the words of a lower-case text, in order of first appearance."""
    found: dict[Precision, None] = {}
    for word in dict.fromkeys(_WORD.findall(text)):
        whole = _TYPES.get(word)
        if whole is not None:
            found[whole] = None
        elif "_" in word:
            found.update((_CODES[part], None) for part in word.split("_") if part in _CODES)
    return tuple(found)


def operands(types: Iterable[Precision]) -> Precision:
    """Return the precision of a matrix kernel's operands from the types it mentions.

    The narrowest type is that of the operands: float32 beside a 16-bit type is the accumulator or the
    epilogue. Two different narrow types are `mixed`.
    """
    found = set(types)
    if {"fp4", "fp8"} <= found or {"fp16", "bf16"} <= found:
        return "mixed"
    order: tuple[Precision, ...] = ("fp4", "fp8", "int8", "fp16", "bf16", "tf32", "fp32", "fp64")
    return next((precision for precision in order if precision in found), "unknown")


def values(types: Iterable[Precision]) -> Precision:
    """Return the precision of an element-wise kernel from the types it mentions; several are `mixed`.

    Integers beside floats are indices or masks and do not count.
    """
    floats = [precision for precision in dict.fromkeys(types) if precision != "int8"]
    if not floats:
        return "unknown"
    return floats[0] if len(floats) == 1 else "mixed"


_BUILTIN = {
    "f": "float", "d": "double", "i": "int", "j": "unsigned", "l": "long", "m": "unsigned long", "b": "bool",
    "h": "unsigned char", "a": "signed char", "c": "char", "s": "short", "t": "unsigned short", "x": "long long",
    "y": "unsigned long long", "v": "void", "w": "wchar_t", "e": "long double", "n": "__int128", "z": "...",
}  # fmt: skip
_SKIP = re.compile(r"S[0-9A-Z]*_|S[abdiost]|T[0-9]*_|L[a-z]n?\d+E|Dp|Dn|[PRKVOCG]")
_WIDE = re.compile(r"DF16_|DF16b|Dh")
_LENGTH = re.compile(r"\d+")
_VALUE = re.compile(r"n?\d+E")


def readable(mangled: str) -> str:
    """Return a mangled C++ name as readable text: its identifiers and types in order, with `::`, `<`, `>`.

    Not a demangler: substitutions are dropped and parameters follow the name without brackets. It is
    enough to find functions, template arguments and types (Itanium C++ ABI, section 5.1).
    """
    return _read(mangled)[0]


def _is_cut_mangled(mangled: str) -> bool:
    text = mangled.removesuffix(".kd")
    return _read(text)[1]


def _read(mangled: str) -> tuple[str, bool]:
    """Return a mangled name as text, and whether it ends too early: inside an identifier or an open scope.

    One pass, no recursion; what it does not understand it steps over.
    """
    out: list[str] = []
    # "N" nested name, "I" template arguments, "L" literal, "?" anything else that E closes
    scopes: list[str] = []
    at = mangled.index("Z") + 1
    end = len(mangled)
    while at < end:
        letter = mangled[at]
        if letter.isdigit() and (digits := _LENGTH.match(mangled, at)):
            # Long runs of digits are noise, and int() of them is slow.
            length = int(digits.group()[:6])
            out.append(mangled[digits.end() : digits.end() + length])
            at = digits.end() + length
            separator = "::" if scopes and scopes[-1] == "N" else " "
            out.append(separator)
        elif letter.islower() or letter == "_":  # a builtin type; nothing else begins with one
            if letter in _BUILTIN and scopes and scopes[-1] != "N":
                out.append(_BUILTIN[letter] + ", ")
            at += 1
        elif letter in "NIFXJ":
            scopes.append(letter if letter in "NI" else "?")
            if letter == "I":
                out.append("<")
            at += 1
        elif letter == "E":
            out.append("> " if scopes and scopes.pop() == "I" else " ")
            at += 1
            if scopes and scopes[-1] == "L":
                scopes.pop()
                value = _VALUE.match(mangled, at)
                at = value.end() if value else at
        elif wide := _WIDE.match(mangled, at):
            out.append("bfloat16 " if wide.group() == "DF16b" else "half ")
            at = wide.end()
        elif skip := _SKIP.match(mangled, at):
            at = skip.end()
        elif mangled.startswith("LN", at):  # the value of an enumeration: its type, then a number
            scopes.append("L")
            at += 1
        else:
            at += 1
    return re.sub(r"(?:::| )(?=<)|::(?= |$)", "", "".join(out)).strip(), at > end or bool(scopes)
