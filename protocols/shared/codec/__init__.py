"""The parts that the codecs of several AMQP versions share: integers that know their width, and the code generator."""
