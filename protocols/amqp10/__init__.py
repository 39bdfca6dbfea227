"""AMQP 1.0: a machine that knows the protocol and no broker, and those who serve what it hears to the core.

    octets and values    values, reading, writing (one door: types)   neutral: the same in the core's values
    composite types      spec/ ──generates──> performatives, on fields
    frames               wire; reader is the quick corner in front of everything

    the machine          greeting ─> connection ─> session ─> link ─> receiving, sending (one door: links)
                         answers serves it; contract says what it needs from its owners

    the owners           adapter ─> served_session ─┬─> publishing       the peer's senders; recovery, if they come back
                                                    ├─> consuming        its receivers; sources, outcomes, timeouts
                                                    ├─> coordinator      transactions
                                                    └─> management       management_requests, management_syntax
                         addresses, nodes: what an attach names and makes; subscriptions, termini: what outlives it
                         failures: the core's refusals in AMQP's words; registration: how a node finds all this

    messages             sections ─> envelope ─> encoding, the two hot paths; conversion for other protocols

The peer's sender is our incoming link and publishes; its receiver is our outgoing link and consumes. The machine
speaks of links, the owners of what they are for.
"""
