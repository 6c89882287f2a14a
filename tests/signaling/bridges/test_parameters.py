import pytest

from agent.errors import ProtocolError
from signaling.bridges.parameters import take_parameters


def test_only_names_on_the_list_pass() -> None:
    told = take_parameters({"queue": "sales", "secret": "x", "caller": "+4315550100"}, ("queue", "shop"), "p")
    assert told.caller == "+4315550100"
    assert told.metadata == {"queue": "sales"}


def test_the_language_of_a_call_may_be_told() -> None:
    assert take_parameters({"language": "zh"}, (), "p").language == "zh"


def test_an_unknown_caller_is_nobody() -> None:
    assert take_parameters({"caller": ""}, (), "p").caller is None


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"caller": "x" * 129}, "start.caller"),
        ({"caller": "a\nb"}, "start.caller"),
        ({"language": "not a tag"}, "start.language"),
        ({"queue": "x" * 257}, "start.queue"),
        ({"queue": "a\x00"}, "start.queue"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, str], field: str) -> None:
    with pytest.raises(ProtocolError, match=field.replace(".", r"\.")) as caught:
        take_parameters(values, ("queue",), "start")
    assert caught.value.field == field
