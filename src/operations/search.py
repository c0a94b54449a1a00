"""The search attributes of every run, by name: Temporal's lists can be filtered by them."""

OPERATION_TENANT = "TallystickTenant"
OPERATION_NAME = "TallystickOperation"
OPERATION_KEY = "TallystickKey"
OPERATION_STATE = "TallystickState"
"""Set by the run itself, when it leaves the path on which all goes well: a run without it is under
way, or has succeeded, as Temporal's own status says."""

SEARCH_ATTRIBUTES = (OPERATION_TENANT, OPERATION_NAME, OPERATION_KEY, OPERATION_STATE)
"""All are of Temporal's type Keyword."""
