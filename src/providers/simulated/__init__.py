"""The simulated world: payments, acquirer, warehouse, carrier and mail in a process of their own.

It behaves like five real partners with documented HTTP interfaces and a durable ledger, and it
lies, stalls and loses replies when told to (`/admin/faults`). Each module holds one role:
`vocabulary` the closed sets and settings, `faults` what was armed, `books` the durable ledger,
`wire` sockets and answers, `desk` the path of one request, `reads` look-ups and lists, one module
per provider for its business rules, `admin` the switches, `server` the composition.
"""
