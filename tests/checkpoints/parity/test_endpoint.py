"""Servers that speak OpenAI's completion protocol, on loopback."""

import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import torch

from spectrope.checkpoints.parity import Endpoint
from spectrope.checkpoints.parity.address import key_for
from spectrope.core import ConfigError, UnsupportedError

PROMPTS, PLACES = torch.tensor([[3, 4, 5]]), torch.tensor([0, 2])
Answer = Callable[[Any, dict[str, str]], tuple[int, Any, dict[str, str]]]


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[str, list[Any]]]:
    """The address of a server that answers so, and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body, dict(self.headers)))
            status, said, headers = answer(body, dict(self.headers))
            text = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def says(logprobs: Any) -> Answer:
    return lambda body, headers: (200, {"choices": [{"logprobs": logprobs}]}, {})


BY_TEXT = [{"token": "seven", "logprob": -0.5}, {"token": "nine", "logprob": -1.0}]
FORMS = {
    "ids": {"content": [{"top_logprobs": [{"id": 7, "logprob": -0.5}, {"id": 9, "logprob": -1.0}]}]},
    "named ids": {"top_logprobs": [{"token_id:7": -0.5, "token_id:9": -1.0}]},
    "texts": {"top_logprobs": [{"seven": -0.5, "nine": -1.0, "unknown": -9.0}]},
    "texts of tokens": {
        "content": [
            {"top_logprobs": [{"token": "seven", "logprob": -0.5}, {"token": "nine", "logprob": -1.0}]}
        ]
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_protocol_is_read(form: str):
    with answering(says(FORMS[form])) as (url, asked):
        seen = Endpoint(url, "llama", vocabulary={"seven": 7, "nine": 9}).predict(PROMPTS, PLACES)
    assert seen.ids is not None
    assert seen.ids.tolist() == [[[7, 9], [7, 9]]]
    assert seen.logs[0, 0].tolist() == [-0.5, -1.0]
    assert seen.unnamed is not None
    assert seen.unnamed.tolist() == [[-9.0 if form == "texts" else -math.inf] * 2]
    assert [body["prompt"] for _, body, _ in asked] == [[3], [3, 4, 5]]
    assert {path for path, _, _ in asked} == {"/v1/completions"}
    assert asked[0][1]["model"] == "llama"


def test_a_key_comes_from_the_environment_and_is_never_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPECTROPE_API_KEY", "secret-key")
    with answering(lambda body, headers: (401, "no such key", {})) as (url, asked):
        endpoint = Endpoint(url)
        with pytest.raises(ConfigError, match="answered 401 Unauthorized: no such key") as refused:
            endpoint.predict(PROMPTS, PLACES)
    assert asked[0][2]["Authorization"] == "Bearer secret-key"
    assert "secret-key" not in str(refused.value) + repr(endpoint) + endpoint.name


def test_what_a_server_says_is_shown_without_the_key_and_without_control_characters(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SPECTROPE_API_KEY", "sk-0123456789")
    echo = "\x1b[2J no key sk-0123456789; " + "x" * 165 + " sk-0123456789"  # The second one is cut.
    with answering(lambda body, headers: (401, echo, {})) as (url, _), pytest.raises(ConfigError) as refused:
        Endpoint(url).predict(PROMPTS, PLACES)
    assert "no key ***" in str(refused.value)
    assert "sk-012345" not in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("key", ["sk-01\n23", "sk-01…23", "sk-01 23"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPECTROPE_API_KEY", key)
    with pytest.raises(ConfigError, match="SPECTROPE_API_KEY must be printable ASCII") as refused:
        Endpoint("http://127.0.0.1:9/v1").predict(PROMPTS, PLACES)
    assert "sk-01" not in str(refused.value)


def test_a_key_goes_to_other_machines_encrypted_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPECTROPE_API_KEY", "sk-0123")
    assert {key_for(f"http://{host}/v1") for host in ("localhost", "127.0.0.2:80", "[::1]:80")} == {"sk-0123"}
    assert key_for("https://example.org/v1") == "sk-0123"
    with pytest.raises(ConfigError, match=r"sent to example\.org unencrypted; use https"):
        key_for("http://example.org/v1")


def test_a_key_of_openai_goes_to_openai_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SPECTROPE_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123")
    assert key_for("https://api.openai.com/v1") == "sk-0123"
    assert key_for("https://example.org/v1") == key_for("http://127.0.0.1/v1") == ""


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SPECTROPE_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with answering(says(FORMS["ids"])) as (url, asked):
        Endpoint(url).predict(PROMPTS, PLACES)
    assert "Authorization" not in asked[0][2]


def test_redirections_are_not_followed():
    with answering(says(FORMS["ids"])) as (elsewhere, asked):
        target = {"Location": f"{elsewhere}/completions"}
        away = answering(lambda body, headers: (307, "", target))
        with away as (url, _), pytest.raises(ConfigError, match="answered 307"):
            Endpoint(url).predict(PROMPTS, PLACES)
    assert asked == []


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(says(FORMS["ids"])) as (url, asked):
        Endpoint(url).predict(PROMPTS, PLACES)
    assert asked


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda body, headers: (200, "<html>", {}), "does not answer with JSON"),
        (lambda body, headers: (200, {"choices": []}, {}), "no completion with log-probabilities"),
        (says({"content": [{"top_logprobs": [{"id": 1, "logprob": "x"}]}]}), "no completion with"),
        (says({"top_logprobs": [{"token_id:1": math.nan, "token_id:2": -1.0}]}), "not finite"),
        (says({"top_logprobs": [{"token_id:1": 10**400, "token_id:2": -1.0}]}), "no completion with"),
        (says({"top_logprobs": [{"token_id:1": 7.5, "token_id:2": 3.0}]}), "add up to more than 1"),
        (says({"top_logprobs": [{"token_id:1": -0.1, "token_id:2": -0.1}]}), "add up to more than 1"),
        (lambda body, headers: (200, "[" * 10**5, {}), "does not answer with JSON"),
    ],
)  # fmt: skip
def test_other_answers_are_refused(answer: Answer, what: str):
    with answering(answer) as (url, _), pytest.raises(ConfigError, match=what):
        Endpoint(url).predict(PROMPTS, PLACES)


@pytest.mark.parametrize(
    "reported",
    [
        None,
        {"top_logprobs": []},
        {"top_logprobs": [{"token_id:1": -0.1}]},
        {"top_logprobs": [{"token_id:1": -0.1, f"token_id:{10**20}": -3.0}]},
    ],
)
def test_servers_without_log_probabilities_are_refused(reported: Any):
    with answering(says(reported)) as (url, _), pytest.raises(UnsupportedError, match="needs at least 2"):
        Endpoint(url).predict(PROMPTS, PLACES)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("ftp://127.0.0.1/v1", "such as http://127.0.0.1:8080/v1; got 'ftp"),
        ("http://", "an http or https address"),
        ("http://me:pw@127.0.0.1/v1", "must not hold a password"),
        ("http://127.0.0.1:port/v1", "an http or https address"),
        ("http://[::1/v1", "an http or https address"),
        ("http://127.0.0.1/v 1", "an http or https address"),
        ("http://127.0.0.1/v1?key=1", "must end with the API's path"),
    ],
)
def test_addresses_are_checked(url: str, what: str):
    with pytest.raises(ConfigError, match=what):
        Endpoint(url)


def test_a_server_that_does_not_speak_http():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"no\x1b protocol\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConfigError, match=r"cannot be reached: no  protocol"):
            Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}/v1").predict(PROMPTS, PLACES)
        thread.join()


def test_a_server_that_is_not_there():
    with pytest.raises(ConfigError, match=r"cannot be reached: .*refused"):
        Endpoint("http://127.0.0.1:9/v1").predict(PROMPTS, PLACES)
