"""The only place where effects happen: provider calls and ledger writes, one activity each."""
