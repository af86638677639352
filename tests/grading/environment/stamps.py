"""What a set-up notes in `.venv` about itself, so that the next can tell whether it is current.

A stamp: finished, fingerprint (of the pins), python (version), extras (installed), offered (all
that exist), torch_index, triton (whether it is there). Only `finished: false` means that a
set-up broke off; what it left cannot be trusted.
"""

import hashlib
import json
import os

NAME = "inference-setup.json"


def dotted(version):
    return ".".join(str(part) for part in version)


def fingerprint(root):
    """A hash of what decides the packages; the settings of tools in pyproject.toml don't."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            digest.update(file.read().split("\n[tool.")[0].encode())
    return digest.hexdigest()[:16]


def read(root):
    """The stamp; {} if no set-up ever ran here."""
    try:
        with open(os.path.join(root, ".venv", NAME), encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError):
        return {"finished": False}


def write(root, stamp):
    path = os.path.join(root, ".venv", NAME)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=1)
    os.replace(path + ".new", path)


def venv_python(root):
    return os.path.join(root, ".venv", "bin", "python")


def must_remake(stamp, root, version=None, torch_index=None):
    """Whether the venv has to go; `version` and `torch_index`: what was asked for, if anything."""
    return bool(
        not stamp.get("finished")
        or not os.path.exists(venv_python(root))  # false too for a link to a Python now gone
        or (version and list(version) != stamp["python"])
        or (torch_index and torch_index != stamp["torch_index"])
    )


def is_current(stamp, now, extras):
    """Whether a finished venv with this stamp has the pins `now` and all of `extras`."""
    asked = stamp["offered"] if extras == ["all"] else extras
    return stamp["fingerprint"] == now and set(asked) <= set(stamp["extras"])
