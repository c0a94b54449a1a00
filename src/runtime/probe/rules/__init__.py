"""All rules, in the order in which they are tried and reported."""

from runtime.probe.rules import content, keys, racing, refusals, replaying
from runtime.probe.verdicts import Rule

ALL: tuple[Rule, ...] = (
    racing.race,
    racing.in_progress,
    racing.in_progress_retry_after,
    racing.disconnect,
    replaying.replay,
    replaying.replay_marked,
    replaying.replay_authorised,
    replaying.tenant_isolation,
    replaying.status_readable,
    replaying.status_isolation,
    content.changed_body,
    content.original_after_refusal,
    content.changed_body_after_error,
    content.retry_after_validation_error,
    content.member_order,
    content.white_space,
    content.number_forms,
    content.large_numbers,
    content.duplicate_members,
    content.query_string,
    keys.missing_key,
    keys.empty_key,
    keys.key_quoting,
    keys.key_parameters,
    keys.key_case,
    keys.key_length_255,
    keys.key_length_256,
    keys.key_length_10000,
    keys.key_bytes,
    keys.key_repeated,
    refusals.problem_documents,
)
