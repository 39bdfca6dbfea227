"""AMQP 1.0: a machine that knows the protocol and no broker, and the owners that connect it to the core.

    bytes and values     values, reading, writing (all in types); core_values: conversion to the core's values
    composite types      spec ──generates──> performatives, on fields
    frames               wire; machine/reader is the fast path in front of everything

    the machine          greeting ─> connection ─> session ─> link ─> incoming_link, outgoing_link
                         dispositions and transfer_pattern serve it; contract has the interfaces of its owners

    the owners           adapter ─> session ─┬─> publishing       the peer's senders; resumption, if they come back
                                             ├─> link_consumer    its receivers; sources, outcomes, ack_timeouts
                                             ├─> control_link     transactions
                                             └─> management       link_pair, administration, syntax
                         addresses, dynamic_queues: what an attach names and creates
                         subscriptions, termini: what outlives a link
                         errors: the core's refusals as AMQP errors; registration: the entry point for a node

    messages             sections ─> envelope ─> encoding, the two hot paths; conversion for other protocols

The peer's sender is our incoming link and publishes; its receiver is our outgoing link and consumes. The machine deals
with links, and their owners with the purpose of each.
"""
