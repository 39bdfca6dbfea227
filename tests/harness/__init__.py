"""What the tests of all folders share: brokers on a bench, clients joined to them in memory, and attacks on them."""
