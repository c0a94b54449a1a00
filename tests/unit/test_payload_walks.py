"""The SDK walks through payloads when there is something to do there, and only then."""

import base64
from collections.abc import Callable

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter

from runtime import payload_walks
from runtime.codec import data_converter
from runtime.payload_walks import leave_out_idle_walks

PLAIN = b'"tok_visa"'


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK as it comes, and as it was after the test."""
    for name in payload_walks._WALKS:
        walk = getattr(bridge, name)
        monkeypatch.setattr(bridge, name, getattr(walk, "__wrapped__", walk))


async def result_of(converter: DataConverter) -> bytes:
    """What a workflow's result is when it leaves the worker."""
    completion = WorkflowActivationCompletion()
    command = completion.successful.commands.add()
    command.complete_workflow_execution.result.CopyFrom(
        Payload(metadata={"encoding": b"json/plain"}, data=PLAIN)
    )
    await bridge.encode_completion(
        completion, converter, encode_headers=False, storage_concurrency_limit=1
    )
    return command.complete_workflow_execution.result.data


@pytest.mark.usefixtures("sdk")
async def test_a_codec_is_asked_and_nothing_is_walked_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked: list[DataConverter] = []

    def counted(walk: payload_walks.Walk) -> payload_walks.Walk:
        async def walk_and_count(
            completion: object,
            data_converter: DataConverter,
            encode_headers: bool,
            storage_concurrency_limit: int,
        ) -> object:
            walked.append(data_converter)
            return await walk(completion, data_converter, encode_headers, storage_concurrency_limit)

        return walk_and_count  # pyright: ignore[reportReturnType]

    monkeypatch.setattr(bridge, "encode_completion", counted(bridge.encode_completion))
    assert leave_out_idle_walks(), "the SDK has changed: read it, and say what is known of it"
    assert leave_out_idle_walks(), "again, by the next worker of the process"
    encrypting = data_converter(f"first:{base64.b64encode(bytes(32)).decode()}")
    assert await result_of(data_converter(None)) == PLAIN
    assert walked == []
    assert PLAIN not in await result_of(encrypting)
    assert walked == [encrypting]


@pytest.mark.usefixtures("sdk")
async def test_an_sdk_that_is_not_known_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def other(message: object) -> None:
        """Takes something else."""

    monkeypatch.setattr(bridge, "decode_activation", other)
    before: Callable[..., object] = bridge.encode_completion
    assert not leave_out_idle_walks()
    assert bridge.decode_activation is other
    assert bridge.encode_completion is before
