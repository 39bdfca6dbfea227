"""The kind of leases in the store. Those of queues that are not kept do not come back at a start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.catalogue import LEASE
from leveret.durable.kinds.kind import Kind, give_number
from leveret.durable.kinds.topology import outlives_node
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import Unreadable
from leveret.features.leases.lease import Lease, leases_of
from leveret.queues.work_queue import WorkQueue
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.restoration import Restoration


def record_of(lease: Lease) -> Json:
    return {"number": lease.number, "fence": lease.fence, "incarnation": lease.incarnation}


def is_kept(lease: Lease) -> bool:
    return outlives_node(lease.queue)


def restore(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    host, name, reader = restoration.host(names[0]), names[1], names[2]
    queue = host.queues.get(name)
    if not isinstance(queue, WorkQueue):
        raise Unreadable("its queue is not there")
    lease = Lease(queue, reader)
    lease.fence, lease.incarnation = record.whole("fence"), record.text("incarnation")
    restoration.number(lease, record)
    leases_of(host)[name, reader] = lease


def begin(broker: Broker) -> None:
    for host in broker.hosts():
        for lease in leases_of(host).values():
            lease.begin()


LEASES: Final = Kind(LEASE, 3, record_of, restore, prepare=give_number, is_kept=is_kept, begin=begin)
