"""For tests of what is built on Leveret: stand-ins without sockets, and conformance kits for plugins.

fakes an exchange with its type, queues, broker and clock, by constructor: `Bench` conformance
`check_exchange_type`: whether a type keeps the contract (needs hypothesis)

Nothing is imported here, so that pytest can load the plugin in this package at no cost.
"""
