"""The table of all kinds of things that are kept, in the order in which they are restored."""

from __future__ import annotations

from typing import Final

from leveret.durable.kinds import administration
from leveret.durable.kinds.kind import Kinds
from leveret.durable.kinds.topology import BINDINGS, ENDING_QUEUES, EXCHANGES, QUEUES
from leveret.features.deduplication.kind import DEDUPLICATIONS
from leveret.features.leases.kind import LEASES
from leveret.features.parameters.kind import PARAMETERS
from leveret.features.protocol_records.kind import PROTOCOL_RECORDS
from leveret.features.staging.kind import STAGINGS
from leveret.features.unsettled_maps.kind import UNSETTLED_MAPS
from leveret.features.xa.kind import BRANCHES

KINDS: Final[Kinds] = (
    *administration.KINDS,
    *PARAMETERS,
    EXCHANGES,
    ENDING_QUEUES,
    QUEUES,
    DEDUPLICATIONS,
    LEASES,
    STAGINGS,
    BRANCHES,
    UNSETTLED_MAPS,
    PROTOCOL_RECORDS,
    BINDINGS,
)
