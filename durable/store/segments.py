"""Write the segments of a data folder: files of blocks, and rows in messages.db that say how much of them is valid.

    appends ──> blocks at the ends of files, synced ──> rows: the commit ──> files of deleted segments are removed

    streams/<number of the stream>/<first offset, 20 digits>.segment

What a file has after the end in its row was not committed: it is cut off before anything is appended. A file without a
row is deleted at a start. So neither is ever read, and a crash between any two steps costs nothing that was confirmed.

One thread writes. Others may ask for spans and read: a span is replaced as a whole, once its commit is on disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from leveret.durable.store import block
from leveret.durable.store.contract import Append, Commit, Span, StoreError
from leveret.durable.store.folder import STREAMS, BadFolder
from leveret.durable.store.segment import begun_by, found_in, longer
from leveret.durable.store.syncing import sync_file, sync_folder, write_all

SUFFIX: Final = ".segment"
DIGITS: Final = 20  # of an offset
OFFSETS_MAX: Final = (1 << 63) - 1
READING: Final = os.O_RDONLY | os.O_NOFOLLOW
WRITING: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW

Key = tuple[int, int]  # stream, first offset
Producer = tuple[int, str]  # stream, name


class SegmentChange:
    """Changes to the rows of segments and producers in messages.db, which are identified by their places."""

    __slots__ = ("cut", "ended", "forgotten", "producers", "spans")

    def __init__(self) -> None:
        self.spans: dict[Key, tuple[int, Span]] = {}  # grown or new
        self.cut: dict[Key, int] = {}
        self.producers: dict[Producer, tuple[int, int]] = {}  # place, last sequence number
        self.forgotten: dict[Producer, int] = {}
        self.ended: list[int] = []  # streams whose folders are deleted


class Segments:
    """The segments of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / STREAMS
        self.spans: dict[Key, Span] = {}  # as committed
        self._places: dict[Key, int] = {}
        self._producers: dict[Producer, int] = {}  # to the places of their rows
        self._next_place = count(1)
        self._spoilt: list[int] = []  # places of damaged rows
        self.mended: SegmentChange | None = None
        self._touched: list[Key] = []  # by the commit that is being written
        self._named: set[int] = set()  # streams whose folders are certainly on disk
        self.syncs = True  # whether files are synced; False: they are only a copy
        # Collects blocks: segment, place in its file.
        self.written: list[tuple[Key, int, bytes]] | None = None

    # Start.

    def know(
        self, spans: Iterable[tuple[int, Span | None]], producers: Iterable[tuple[int, Producer]]
    ) -> None:
        """Take over the rows with their places; None is a damaged one."""
        places = [0]
        for place, span in spans:
            places.append(place)
            if span is None:
                self._spoilt.append(place)
            else:
                self.spans[span.stream, span.first] = span
                self._places[span.stream, span.first] = place
        self._producers = {producer: place for place, producer in producers}
        self._next_place = count(max([*places, *self._producers.values()]) + 1)

    def find_again(self) -> None:
        """Rebuild the spans of damaged rows from the files, or offsets would be assigned twice.

        `mended` is then what the rows have to say. Raises BadFolder, StoreError.
        """
        self.mended = SegmentChange()
        self.mended.cut = {(-1, place): place for place in self._spoilt}
        for folder in _listed(self._folder):
            sizes = self._sizes(folder) if folder.name.isdecimal() else {}
            keys = sorted(key for name in sizes if (key := _key_of(folder / name)) is not None)
            for at, key in enumerate(keys):
                if key not in self.spans:
                    until = keys[at + 1][1] if at + 1 < len(keys) else OFFSETS_MAX
                    size = sizes[self.file(*key).name]
                    span = found_in(*key, size, until, partial(self.read, *key))
                    self.spans[key], self._places[key] = span, next(self._next_place)
                    self.mended.spans[key] = self._places[key], span

    def damage(self) -> Iterator[str]:
        """Yield descriptions of files that are missing or too short. Raises BadFolder if a folder cannot be read."""
        sizes: dict[str, int] = {}
        stream = -1
        for key in sorted(self.spans):
            if key[0] != stream:
                stream = key[0]
                sizes = self._sizes(self._folder / str(stream))
            span, file = self.spans[key], self.file(*key)
            size = sizes.get(file.name)
            if size is None:
                yield f"stream {stream}: {file} is missing, with the messages from {span.first} to {span.next - 1}"
            elif size < span.octets:
                yield f"stream {stream}: {file} is cut off, with some of the messages up to {span.next - 1}"

    def _sizes(self, folder: Path) -> dict[str, int]:
        try:
            with os.scandir(folder) as entries:
                return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise BadFolder(f"{folder} cannot be read: {error.strerror}") from None

    def tidy(self) -> None:
        """Delete files without a row, and the folders of streams that have none. Raises OSError."""
        streams = {str(stream) for stream, _ in self.spans}
        for folder in _listed(self._folder):
            if folder.name in streams:
                for file in _listed(folder):
                    if (key := _key_of(file)) is not None and key not in self.spans:
                        file.unlink()
            elif folder.name.isdecimal():
                _remove(folder)

    # Commit.

    def write(self, commit: Commit) -> SegmentChange | None:
        """Write and sync what is appended. Returns the changes of the rows. Raises OSError."""
        if not (commit.appends or commit.cut or commit.ended or commit.producers):
            return None
        change = SegmentChange()
        ended, cut = set(commit.ended), set(commit.cut)
        files: dict[Key, list[Append]] = {}
        for append in commit.appends:
            if append.stream not in ended and (append.stream, append.segment) not in cut:
                files.setdefault((append.stream, append.segment), []).append(append)
        for key, appends in files.items():
            place = self._places.get(key) or next(self._next_place)
            change.spans[key] = place, self._append(key, appends)
        change.ended = commit.ended
        gone = [key for key in self.spans if key[0] in ended] if ended else []
        change.cut = {key: self._places[key] for key in (*commit.cut, *gone) if key in self._places}
        self._note_producers(commit, ended, change)
        return change

    def _note_producers(self, commit: Commit, ended: set[int], change: SegmentChange) -> None:
        known = self._producers
        for producer, last in commit.producers.items():
            if last >= 0 and producer[0] not in ended:
                change.producers[producer] = known.get(producer) or next(self._next_place), last
            elif producer in known:
                change.forgotten[producer] = known[producer]
        if ended:
            change.forgotten |= {each: place for each, place in known.items() if each[0] in ended}

    def _append(self, key: Key, appends: list[Append]) -> Span:
        """Append blocks to a segment, which may begin with them. Raises OSError."""
        span = self.spans.get(key)
        is_new = span is None
        if span is None:
            assert appends[0].first == key[1], "a segment that begins has the first offset that is in it"
            span = begun_by(appends[0])
            self.have_folder(key[0])
        self._touched.append(key)
        file = self.file(*key)
        is_new = is_new or not file.exists()
        descriptor = os.open(file, WRITING, 0o600)
        try:
            if os.fstat(descriptor).st_size != span.octets:
                os.ftruncate(descriptor, span.octets)  # a torn tail is cut off; what is lost becomes a hole
            for append in appends:
                assert append.first == span.next, "what is appended follows what is there"
                end = span.octets
                for octets in block.written(append):
                    if self.written is not None:
                        self.written.append((key, end, octets))
                    end += write_all(descriptor, octets, end)
                span = longer(span, append, end)
            if self.syncs:
                sync_file(descriptor)
        finally:
            os.close(descriptor)
        if is_new and self.syncs:
            sync_folder(file.parent)
        return span

    def have_folder(self, stream: int) -> None:
        """Create the folder of a stream, if there is none. Raises OSError."""
        if stream in self._named:
            return
        folder = self._folder / str(stream)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.syncs:
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
        self._named.add(stream)

    def take_back(self) -> None:
        """Undo a commit that had no space. What cannot be undone is cut off before the next one is written."""
        touched, self._touched = self._touched, []
        for key in touched:
            span = self.spans.get(key)
            with suppress(OSError):
                if span is None:
                    self.file(*key).unlink()
                else:
                    os.truncate(self.file(*key), span.octets)

    def landed(self, change: SegmentChange) -> None:
        """Called once the rows are on disk."""
        self._touched = []
        for key, (place, span) in change.spans.items():
            self.spans[key], self._places[key] = span, place
        for key in change.cut:
            del self.spans[key], self._places[key]
        self._producers |= {producer: place for producer, (place, _) in change.producers.items()}
        for producer in change.forgotten:
            del self._producers[producer]

    def remove(self, change: SegmentChange) -> None:
        """Delete the files of what the change has deleted. Raises OSError."""
        for key in change.cut:
            self.file(*key).unlink(missing_ok=True)
        for stream in change.ended:
            self._named.discard(stream)
            _remove(self._folder / str(stream))

    # Reading.

    def read(self, stream: int, first: int, at: int, length: int) -> bytes:
        """Read bytes of a file; see `segment.Read`."""
        return read_file(self.file(stream, first), at, length)

    def file(self, stream: int, first: int) -> Path:
        return file_of(self._folder, stream, first)


def file_of(streams: Path, stream: int, first: int) -> Path:
    return streams / str(stream) / f"{first:0{DIGITS}}{SUFFIX}"


def read_file(file: Path, at: int, length: int) -> bytes:
    """Read bytes of a file; none if it is missing. Raises StoreError."""
    try:
        descriptor = os.open(file, READING)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return os.pread(descriptor, length, at)
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _key_of(file: Path) -> Key | None:
    """Return the stream and first offset of a segment file; None if it is no such file."""
    stem = file.stem
    if file.suffix != SUFFIX or len(stem) != DIGITS or not (file.parent.name + stem).isdecimal():
        return None
    return int(file.parent.name), int(stem)


def _remove(folder: Path) -> None:
    """Delete the folder of a stream. Files that are not ours stay, and the folder with them. Raises OSError."""
    for file in _listed(folder):
        if _key_of(file) is not None:
            file.unlink()
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
