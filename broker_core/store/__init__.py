"""The durable store: what outlives the node, and how it is found again.

contract.py   what a store is asked for; Commit, Chunk, Page
journal.py    the loop's side: gathers what queues and topology change, commits it, tells publishers
chunks.py     which entries of which chunk are still needed; what to rewrite
chunk.py      the format of a chunk: messages to octets and back
objects.py    exchanges, queues, bindings, users, policies: to JSON and back
block.py      the format of a block: messages of a stream to octets and back
segment.py    offsets and times to blocks of a segment, however damaged it is
segments.py   the files of segments: appended to, synced, cut; what of them is valid
segment_log.py a stream's messages: open, in flight, committed, fetched again
recovery.py   a store's chunks to the pages of queues, at start
paging.py     which waiting messages stay in memory
backlog.py    what of a queue is on disk only, and how it comes back
sqlite.py     the store in SQLite: writer thread, group commit, reading, backup
memory.py     the same contract in memory, for tests and embedding
folder.py     the data folder: its files, its lock, its format's version
"""
