"""`leveret perf`: loads a broker over AMQP 0-9-1 or 1.0, and measures what it carries and how long that takes.

plan        what is to be done, read from the command line
topology    the exchange and queues it needs, and their end
block       many messages as one piece of octets, patched in columns
deliveries  what a broker delivers, counted by strides
ends        publishers and consumers, whatever the protocol; connection: a socket that has some of them
dialing     a broker is reached, or it is said why not
speak091    their words in 0-9-1, and speak10 in 1.0
worker      many connections in one thread; workers: in several processes
conductor   when it is over; report: what is told
"""
