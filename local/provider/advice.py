"""What was perhaps meant by an expression that is not JMESPath, and plain words for faults said in raw ones."""

import re

_NOT_JMESPATH = re.compile(r"""(['"])(.*)\1 is not JMESPath: """)
_TOO_LARGE = re.compile(r"Expected `float` <= 1e\+300|Number out of range")
_MEANT = {
    r"\$": "an expression has no $: body.a, not $.body.a",
    r"\w-[A-Za-z]": "a name with a dash stands in double quotes",
    r"[=<>]\s*-?\d": "a number stands in backticks",
    r"\bnot\s": "not is written !",
    r"\sand\s|\sor\s": "and is written &&, or is written ||",
}


def advised(fault: str) -> str:
    """The same fault, with what was perhaps meant."""
    fault = _TOO_LARGE.sub("is too large", fault)
    if not (found := _NOT_JMESPATH.search(fault)):
        return fault
    code = re.sub("'[^']*'", "", found[2])
    meant = [said for pattern, said in _MEANT.items() if re.search(pattern, code)]
    if "in ${…}" in fault and code.startswith("{"):
        meant = ["one pair of braces: " + "${" + code.strip("{}") + "}"]
    return fault.replace(" is not JMESPath: ", f" is not JMESPath ({meant[0]}): ", 1) if meant else fault
