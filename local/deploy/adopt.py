"""The end of `make deploy-cache`: writes the outputs of cache.yaml's stack into samconfig.toml, as parameters."""

import sys
from pathlib import Path

from local import sam_template
from local.deploy import samconfig, stack
from local.deploy.samconfig import ConfigError

ENVIRONMENT = "cache"


def outputs(config: Path) -> dict[str, str]:
    """What the cache's stack puts out. Raises ConfigError where that cannot be had, or is for another stack."""
    samconfig.as_sam(config, ENVIRONMENT)
    name, user = samconfig.stack_name(config, ENVIRONMENT), samconfig.stack_name(config)
    found, known = stack.outputs(name) or {}, stack.parameters(name) or {}
    wanted = list(sam_template.template("cache.yaml")["Outputs"])
    if not found.keys() >= set(wanted):
        raise ConfigError(f"the stack {name} cannot be seen: give its outputs as parameters, {', '.join(wanted)}")
    if (meant := known.get("QueueStack")) != user:
        raise ConfigError(f"the cache is for the stack {meant}, not for {user}: deploy it with QueueStack={user}")
    return {one: found[one] for one in wanted}


def main(config: Path = samconfig.FILE) -> int:
    """0 where all of them are written."""
    try:
        found = outputs(config)
        samconfig.keep(config, found)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"written into {config.name}, for `make deploy`:", *(f"    {name}={it}" for name, it in found.items()), sep="\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
