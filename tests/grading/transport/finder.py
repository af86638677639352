"""`from submission.attention.kv_cache import KVCache`, where the submission is elsewhere."""

from __future__ import annotations

import importlib.abc
from importlib.machinery import ModuleSpec

from tests.grading.submission import PACKAGE
from tests.grading.transport.proxy import Name


class ProxyFinder(importlib.abc.MetaPathFinder):
    """Makes every module under `submission` a source of names."""

    serves_submission = True

    def find_spec(self, fullname, path=None, target=None):
        if fullname == PACKAGE or fullname.startswith(f"{PACKAGE}."):
            return ModuleSpec(fullname, _ProxyLoader(), is_package=True)
        return None

    def close(self) -> None:
        """Nothing to undo."""


class _ProxyLoader(importlib.abc.Loader):
    def exec_module(self, module):
        where = module.__name__.removeprefix(PACKAGE).removeprefix(".")

        def __getattr__(name: str):
            if name.startswith("_"):
                raise AttributeError(name)
            return Name(where, name)

        module.__getattr__ = __getattr__
