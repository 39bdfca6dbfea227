"""Runtime parameters of the components that connect brokers: one table of components, their storing and passwords."""
