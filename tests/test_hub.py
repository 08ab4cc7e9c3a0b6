"""Where the hub cannot be reached it is asked once, nothing is tried again, and one line says so."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import constants

from trimsft import hub
from trimsft.data.encode import load_tokenizer
from trimsft.errors import UsageError
from trimsft.models import load_config


class Network:
    """Answers the way a test wants, and counts the questions."""

    def __init__(self, answer: Exception | None) -> None:
        self.answer, self.questions = answer, 0

    def head(self, url: str, timeout: float) -> None:
        self.questions += 1
        if self.answer is not None:
            raise self.answer


@pytest.fixture(autouse=True)
def online(monkeypatch, tmp_path) -> Any:
    """As without HF_HUB_OFFLINE, with nothing stored; what is asked is forgotten before and after."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    hub.why_unreachable.cache_clear()
    yield
    hub.why_unreachable.cache_clear()


@pytest.fixture
def network(request, monkeypatch) -> Network:
    network = Network(request.param)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: network)
    return network


GONE = httpx.ConnectError("[Errno -2] Name or service not known")


@pytest.mark.parametrize("network", [GONE], indirect=True)
@pytest.mark.parametrize(
    ("load", "what"), [(load_tokenizer, "a tokenizer from 'nobody/gone'"), (load_config, "'nobody/gone'")]
)
def test_without_a_network_one_attempt_and_one_line(load, what: str, network: Network, monkeypatch, caplog) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("tried again"))
    for _ in range(2):
        with pytest.raises(UsageError) as refused:
            load("nobody/gone", field="model_name_or_path")
        assert str(refused.value) == (
            f"model_name_or_path: cannot load {what} (no such folder here, and the hub cannot be reached: "
            "[Errno -2] Name or service not known); name a folder, or run 'hf download nobody/gone' with a network "
            "first"
        )
    assert network.questions == 1 and not constants.HF_HUB_OFFLINE and not caplog.messages


@pytest.mark.parametrize(
    ("network", "is_offline"),
    [(GONE, True), (httpx.ConnectTimeout("slow"), True), (None, False), (httpx.ReadTimeout("busy"), False)],
    indirect=["network"],
)
def test_only_where_there_is_no_connection_loading_is_offline(network: Network, is_offline: bool) -> None:
    with hub.asking_hub("nobody/model"):
        assert constants.HF_HUB_OFFLINE is is_offline
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize("network", [GONE], indirect=True)
def test_a_folder_asks_nobody(network: Network, tmp_path: Path) -> None:
    with hub.asking_hub(tmp_path), pytest.raises(UsageError, match="cannot load"):
        load_config(tmp_path)
    assert network.questions == 0


@pytest.mark.parametrize("network", [GONE], indirect=True)
def test_what_is_stored_but_broken_is_not_blamed_on_the_network(network: Network) -> None:
    error = hub.not_loaded("'nobody/torn'", "nobody/torn", ValueError("torn file"), field="model")
    assert str(error) == "model: cannot load 'nobody/torn' (no such folder here, so the hub was asked): torn file"


def test_offline_by_the_environment_stays_so(monkeypatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with hub.asking_hub("nobody/model"):
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE and hub.why_unreachable() == "HF_HUB_OFFLINE is set"
