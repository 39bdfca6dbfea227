"""Tools for tests of software built on Leveret: stand-ins without sockets, and conformance kits for plug-ins.

    fakes        an exchange with its type, queues, broker and clock, by constructor: `Bench`
    conformance  `check_exchange_type`: checks that a type keeps the contract (needs hypothesis)

Nothing is imported here, so that pytest can load the plugin in this package at no cost.
"""
