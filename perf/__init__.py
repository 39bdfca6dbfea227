"""Load a broker over AMQP 0-9-1, AMQP 1.0 or MQTT, and measure rates and latencies (`leveret perf`).

* `cli`, `command`: the command line; `plan`: everything that a load is to do, as records
* `topology`: the exchange and queues of a load, declared before it and deleted after it
* `block`: many messages as one piece of bytes, patched in columns; `deliveries`: deliveries counted by strides
* `ends`: publishers and consumers of any protocol; `pace`: when messages are due; `shares`: their parts of a plan
* `dial`: opens sockets; `connection`: a socket that publishers or consumers share
* `drivers`: the protocols; `amqp091`, `amqp10`, `amqp10_setup`, `mqtt`: theirs
* `worker`: many connections in one thread; `workers`: several processes of these; `churn`: loads without messages
* `conductor`: decides when a load is over; `histogram`, `sequence_check`, `report`: results
"""
