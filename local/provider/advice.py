"""What was perhaps meant by an expression that is not JMESPath."""

import re

_NOT_JMESPATH = re.compile(r"""(['"])(.*)\1 is not JMESPath: """)
_MEANT = {
    r"\$": "an expression has no $: body.a, not $.body.a",
    r"\w-[A-Za-z]": "a name with a dash stands in double quotes",
    r"[=<>]\s*-?\d": "a number stands in backticks",
    r"\bnot\s": "not is written !",
    r"\sand\s|\sor\s": "and is written &&, or is written ||",
}


def advised(fault: str) -> str:
    """The same fault, with what was perhaps meant."""
    if not (found := _NOT_JMESPATH.search(fault)):
        return fault
    code = re.sub("'[^']*'", "", found[2])
    meant = [said for pattern, said in _MEANT.items() if re.search(pattern, code)]
    if "in ${…}" in fault and code.startswith("{"):
        meant = ["one pair of braces: " + "${" + code.strip("{}") + "}"]
    return fault.replace(" is not JMESPath: ", f" is not JMESPath ({meant[0]}): ", 1) if meant else fault
