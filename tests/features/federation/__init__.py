"""Federation: exchanges and queues that get messages from upstreams."""
