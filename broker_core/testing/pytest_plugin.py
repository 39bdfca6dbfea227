"""The pytest plugin: a broker for tests (fixture `leveret_broker`)."""
