"""Everything that clients and operators can ask for by a name: one row each, in tables that the broker obeys.

* `row` is the row: name, check, effect, and a sentence for people; `checks` and `merging` are what rows are made of.
* `queue_arguments`, `exchange_arguments` and `policy_keys` are the tables. Exchange types add rows for their own
  arguments (`ExchangeType.arguments`).
* `queue_declaration` checks the arguments of a declaration by the table, and turns them into limits.
"""
