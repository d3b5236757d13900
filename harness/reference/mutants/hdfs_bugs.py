"""Planted bugs of the client of HDFS: each takes an answer, or that there was none, for what it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import requests

from barrier_tck.harness.reference.hdfs_model import ModelHdfsStorage
from barrier_tck.reference_impl.storage.webhdfs import WebHdfs

ResultT = TypeVar("ResultT")


class TakesSilenceForYes(WebHdfs):
    """A rename that nobody answers counts as done."""

    def _ask(self, method: str, path: str, operation: str, parameters: dict[str, str]) -> requests.Response:
        try:
            return super()._ask(method, path, operation, parameters)
        except requests.ConnectionError:
            if operation != "RENAME":
                raise
            return requests.Response()


class DeletesBeforeItRenames(WebHdfs):
    """What is to be replaced is deleted first."""

    def rename(self, source: str, target: str, replace: bool) -> bool:
        """Make room, and rename."""
        if replace:
            self.delete(target)
        return super().rename(source, target, replace=False)


class DoesNotSync(WebHdfs):
    """Blocks stay in the memory of data nodes when a file is closed."""

    def _of_data_node(
        self, method: str, path: str, operation: str, body: Any = None, **parameters: str
    ) -> requests.Response:
        parameters.pop("createflag", None)
        return super()._of_data_node(method, path, operation, body, **parameters)


class SendsTheRest(WebHdfs):
    """A write that broke off is repeated with the chunks that are left."""

    def _repeated(self, request: Callable[[], ResultT], repeatable: Callable[[], bool]) -> ResultT:
        return super()._repeated(request, lambda: True)


class LeavesWhatIsBeside(WebHdfs):
    """What was written beside and could not be renamed is left there."""

    def delete(self, path: str, recursive: bool = False) -> None:
        """Delete what has its final name."""
        if ".tmp-" not in path:
            super().delete(path, recursive)


class AsksOneNameNode(WebHdfs):
    """The first name node is asked, whoever is active."""

    def _ask(self, *request: Any) -> requests.Response:
        self._active = 0
        return super()._ask(*request)


def stored_with(bug: type[WebHdfs]) -> type[ModelHdfsStorage]:
    """Return checkpoint storage in the model of HDFS with a wrong client."""
    return type(f"StorageThat{bug.__name__}", (ModelHdfsStorage,), {"client": bug})
