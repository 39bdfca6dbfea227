"""Write the files of Iceberg tables on this machine so that they are on disk before a catalogue names them.

    manifests, their list, metadata ── synced, and their folders ──> the catalogue's commit

pyiceberg leaves files to the operating system, which writes them some seconds later, and the catalogue's database syncs
its own commit: after a power cut it would name files that are empty, or not there.
"""

from __future__ import annotations

from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from leveret.durable.store.syncing import have_folder, sync_file, sync_folder

LOCAL: Final = "file"  # the scheme of places on this machine, also of those without one


class SyncedFileIO(PyArrowFileIO):
    """The files of tables, as pyarrow has them; those on this machine are synced when they are closed."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, host, path = self.parse_location(location, self.properties)
        if scheme != LOCAL:
            return super().new_output(location)
        return LocalFile(location, path, self.fs_by_scheme(scheme, host))


class LocalFile(PyArrowFile):
    """A file on this machine that is going to be written."""

    def create(self, overwrite: bool = False) -> BufferedWriter:
        """Open it, in a folder that is made if need be. Raises FileExistsError, OSError."""
        have_folder(Path(self._path).parent)
        return BufferedWriter(SyncedFile(self._path, "wb" if overwrite else "xb"), self._buffer_size)


class SyncedFile(FileIO):
    """A file that is on disk once it is closed, and so is its name."""

    def close(self) -> None:
        if self.closed:
            return
        try:
            sync_file(self.fileno())
        finally:
            super().close()
        sync_folder(Path(str(self.name)).parent)
