"""Exchange types beyond the standard four, one file each. They are ordinary plugins: copy one to start your own.

* `consistent_hash` spreads keys over queues by weight; few keys move when a queue comes or goes.
* `delayed_message` holds messages for as long as their header `x-delay` says.
* `jms_topic` asks the selector of each binding, for RabbitMQ's JMS client.
* `local_random` picks a classic queue at random; binding keys are empty.
* `modulus_hash` spreads keys evenly over queues.
* `random_exchange` picks a queue at random.
* `recent_history` gives the last messages to each queue that is bound.
* `super_stream` spreads keys over the partitions of a super stream, as stream clients do.
* `system_exchange` answers questions about the broker.
"""
