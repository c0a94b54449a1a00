"""Problems (RFC 9457): one exception, a closed catalogue, and a page for each at its `type`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from starlette.responses import Response

from operations.receipts import PROBLEM_JSON


class ProblemName(StrEnum):
    """Every problem this service can answer with."""

    KEY_MISSING = "key-missing"
    KEY_MALFORMED = "key-malformed"
    BODY_MALFORMED = "body-malformed"
    SIGNATURE_INVALID = "signature-invalid"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    DECLINED = "declined"
    VALIDATION_FAILED = "validation-failed"
    OPERATION_UNKNOWN = "operation-unknown"
    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    KEY_REUSED = "key-reused"
    IN_PROGRESS = "in-progress"
    KEY_EXPIRED = "key-expired"
    VERDICT_REFUSED = "verdict-refused"
    PRECONDITION_FAILED = "precondition-failed"
    PRECONDITION_REQUIRED = "precondition-required"
    REQUEST_TIMEOUT = "request-timeout"
    BODY_TOO_LARGE = "body-too-large"
    MEDIA_TYPE_UNSUPPORTED = "media-type-unsupported"
    COMPENSATED = "compensated"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    RATE_LIMITED = "rate-limited"
    HEADERS_TOO_LARGE = "headers-too-large"
    STORAGE_UNAVAILABLE = "storage-unavailable"
    EXECUTOR_UNAVAILABLE = "executor-unavailable"
    INTERNAL_ERROR = "internal-error"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a problem means, in general."""

    status: int
    title: str
    happened: str
    """What we know about the effect."""
    to_do: str
    """What the client should do."""


_NOTHING = "Nothing was done, and the key was not used."

CATALOGUE: Mapping[ProblemName, Explanation] = {
    ProblemName.KEY_MISSING: Explanation(
        400,
        "The idempotency key is missing",
        _NOTHING,
        "Send one `Idempotency-Key` header: new for each operation, the same on every retry.",
    ),
    ProblemName.KEY_MALFORMED: Explanation(
        400,
        "The idempotency key cannot be read as one key",
        _NOTHING,
        "Send 1 to 255 bytes of visible ASCII, bare or as a quoted string, on one header line.",
    ),
    ProblemName.BODY_MALFORMED: Explanation(
        400,
        "The body is not JSON that can be read in one way only",
        _NOTHING,
        "Send one JSON object in UTF-8, without repeated member names. Retry with the same key.",
    ),
    ProblemName.SIGNATURE_INVALID: Explanation(
        400,
        "The signature does not match the body, or its time is too far from ours",
        "The message was not taken in.",
        "Sign the raw bytes with the shared secret, and send them soon.",
    ),
    ProblemName.UNAUTHENTICATED: Explanation(
        401,
        "The credential is missing, wrong or revoked",
        _NOTHING,
        "Send `Authorization: Bearer` with a live API key, then retry with the same key.",
    ),
    ProblemName.FORBIDDEN: Explanation(
        403,
        "The credential does not allow this",
        _NOTHING,
        "Use a key with the role `operator`.",
    ),
    ProblemName.DECLINED: Explanation(
        402,
        "The operation was declined",
        "A provider definitely refused it before anything was done. This answer is kept.",
        "Correct what was refused and send it as a new operation, under a new key.",
    ),
    ProblemName.VALIDATION_FAILED: Explanation(
        422,
        "The request does not fit the operation",
        _NOTHING,
        "Correct the members that `errors` points at. The same key may be used.",
    ),
    ProblemName.OPERATION_UNKNOWN: Explanation(
        404,
        "There is no such operation",
        _NOTHING,
        "See `/openapi.json` for the operations of this service.",
    ),
    ProblemName.NOT_FOUND: Explanation(
        404,
        "There is nothing here that you may see",
        "A key never seen and another tenant's key look alike.",
        "Check the operation, the key and the credential. Submitting is safe.",
    ),
    ProblemName.METHOD_NOT_ALLOWED: Explanation(
        405,
        "The method is not allowed here",
        _NOTHING,
        "Use one of the methods in the `Allow` header.",
    ),
    ProblemName.KEY_REUSED: Explanation(
        409,
        "The key was used with other content",
        "The first operation under this key stands; this request did nothing.",
        "If this is a retry, send the first content again. A new key would be a new operation: use "
        "one only if you want this done beside the first.",
    ),
    ProblemName.IN_PROGRESS: Explanation(
        409,
        "The same operation is being processed at this moment",
        "The first request is still under way. Its answer will be the answer.",
        "Retry with the same key after `Retry-After`. A new key could do it twice.",
    ),
    ProblemName.KEY_EXPIRED: Explanation(
        410,
        "The key has expired",
        "It was used for an operation that ended long ago; its answer is no longer kept.",
        "Find out by your own records what became of it. A new key is a new operation.",
    ),
    ProblemName.VERDICT_REFUSED: Explanation(
        409,
        "The operation is not in a state that allows this",
        "Nothing was changed.",
        "Read the operation again: `detail` says what stands in the way.",
    ),
    ProblemName.PRECONDITION_FAILED: Explanation(
        412,
        "The resource has changed since you read it",
        "Nothing was changed.",
        "Read it again, decide again, and send the new ETag in `If-Match`.",
    ),
    ProblemName.PRECONDITION_REQUIRED: Explanation(
        428,
        "The request must say which version it is about",
        "Nothing was changed.",
        "Read the resource and send its ETag in `If-Match`.",
    ),
    ProblemName.REQUEST_TIMEOUT: Explanation(
        408,
        "The request did not arrive in time",
        _NOTHING,
        "Send it again with the same key, over a better connection.",
    ),
    ProblemName.BODY_TOO_LARGE: Explanation(
        413,
        "The body is too large",
        _NOTHING,
        "Send a smaller body. `detail` names the limit.",
    ),
    ProblemName.MEDIA_TYPE_UNSUPPORTED: Explanation(
        415,
        "The body is not of a media type that this service reads",
        _NOTHING,
        "Send `Content-Type: application/json`.",
    ),
    ProblemName.COMPENSATED: Explanation(
        424,
        "A later step failed, and what was done has been undone",
        "The net effect is zero. This answer is kept.",
        "Correct what failed and send it as a new operation, under a new key.",
    ),
    ProblemName.CANCELLED: Explanation(
        424,
        "The operation was cancelled, and what was done has been undone",
        "The net effect is zero. This answer is kept.",
        "Send it as a new operation, under a new key, if it is wanted after all.",
    ),
    ProblemName.ABANDONED: Explanation(
        424,
        "An operator gave up on a step of this operation",
        "What could be undone was undone; the step given up on is left as it is.",
        "Ask the operator before sending it again: a new key is a new operation.",
    ),
    ProblemName.RATE_LIMITED: Explanation(
        429,
        "Too many new operations",
        _NOTHING,
        "Retry with the same key after `Retry-After`. Answers that exist are always given.",
    ),
    ProblemName.HEADERS_TOO_LARGE: Explanation(
        431,
        "The header fields are too large",
        _NOTHING,
        "Send fewer or shorter header fields.",
    ),
    ProblemName.STORAGE_UNAVAILABLE: Explanation(
        503,
        "The ledger cannot be reached",
        "Nothing is run without a claim. Whether the claim was made is not known.",
        "Retry with the same key after `Retry-After`. A new key could do it twice.",
    ),
    ProblemName.EXECUTOR_UNAVAILABLE: Explanation(
        503,
        "Temporal cannot be reached, or no worker answers",
        "Whether this request was taken is not known. Submitting operations still works.",
        "Read the resource again, then retry after `Retry-After` on the version that you read.",
    ),
    ProblemName.INTERNAL_ERROR: Explanation(
        500,
        "Something went wrong that we did not foresee",
        "Whether anything was done is not known. If a key was claimed, the work goes on.",
        "Retry with the same key: that is safe. Tell us the `request_id` if it stays so.",
    ),
}


@dataclass(slots=True)
class Problem(Exception):
    """An answer that is not a success, and is not kept."""

    name: ProblemName
    detail: str
    members: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CATALOGUE[self.name].status

    def response(self) -> Response:
        """The problem document."""
        explanation = CATALOGUE[self.name]
        document = {
            "type": f"/problems/{self.name.value}",
            "title": explanation.title,
            "status": explanation.status,
            "detail": self.detail,
            "to_do": explanation.to_do,
            **self.members,
        }
        return Response(
            json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(),
            status_code=explanation.status,
            headers={**self.headers, "cache-control": "no-store"},
            media_type=PROBLEM_JSON,
        )


def not_found() -> Problem:
    """A key never seen, and another tenant's key, alike."""
    return Problem(ProblemName.NOT_FOUND, "There is no operation under this key.")


def storage_unavailable() -> Problem:
    """Postgres cannot answer."""
    return Problem(
        ProblemName.STORAGE_UNAVAILABLE,
        "Postgres cannot answer now. Retry the same request with the same key.",
        headers={"retry-after": "2"},
    )


def in_progress(path: str) -> Problem:
    """A request with the same key is under way in another transaction."""
    return Problem(
        ProblemName.IN_PROGRESS,
        "Another request with this key is being processed. Retry with the same key.",
        members={"operation": path},
        headers={"retry-after": "1"},
    )


def crowded() -> Problem:
    """Others held the rows that the operation needs for longer than we wait."""
    return Problem(
        ProblemName.STORAGE_UNAVAILABLE,
        "Others are using the same rows. Nothing was done. Retry the same request with the same "
        "key.",
        headers={"retry-after": "1"},
    )
