"""A server that speaks OpenAI's completion protocol and reports log-probabilities."""

import http.client
import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.checkpoints.parity.address import key_for, parsed_address
from spectrope.checkpoints.parity.observed import NO_TOKEN, Observed
from spectrope.checkpoints.parity.runtimes import Runtime
from spectrope.core import ConfigError, UnsupportedError

SECONDS = 120.0  # How long an answer may take.
LARGEST = 1 << 24  # Bytes of an answer.
MOST_TOKENS = 1 << 31  # Above every token id.
EXCESS = 1e-3  # By which reported probabilities may add up to more than 1, for servers that round.
TELLING = 6  # Characters of a key that are not printed.
TOKEN_ID = re.compile(r"token_id:(\d+)")  # As vLLM names tokens when asked to.


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Requests go where the user said, and nowhere else."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


@dataclass(frozen=True, eq=False)
class Endpoint(Runtime):
    """A completion endpoint, asked for one token after each prefix of a prompt.

    Nothing but this address is contacted, without a proxy and without following redirections. A key is read
    from the environment (see `key_for`), and neither stored nor printed.

    Args:
        url: Of the API, such as http://127.0.0.1:8080/v1.
        model: Name that the server knows the model by; "" sends none.
        top: Most probable tokens asked for.
        vocabulary: Token ids by text, for servers that name tokens by their text alone.
    """

    url: str
    model: str = ""
    top: int = 20
    vocabulary: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parsed_address(self.url)

    @property
    def name(self) -> str:
        return self.url

    def predict(self, prompts: Int[Tensor, "n t"], places: Int[Tensor, " m"]) -> Observed:
        rows = [
            [self._after(prompt[: place + 1]) for place in places.tolist()] for prompt in prompts.tolist()
        ]
        width = max(len(found) for row in rows for found, _ in row)
        ids = torch.full((len(rows), len(places), width), NO_TOKEN)
        logs = torch.full(ids.shape, -1e4, dtype=torch.float64)
        for i, row in enumerate(rows):
            for j, (found, _) in enumerate(row):
                ids[i, j, : len(found)] = torch.tensor(list(found))
                logs[i, j, : len(found)] = torch.tensor(list(found.values()), dtype=torch.float64)
        unnamed = torch.tensor([[largest for _, largest in row] for row in rows], dtype=torch.float64)
        return Observed(logs, ids, unnamed)

    def _after(self, tokens: list[int]) -> tuple[dict[int, float], float]:
        """Log-probabilities of the most probable next tokens by id, and the largest of those without one."""
        asked: dict[str, Any] = {
            "prompt": tokens,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": self.top,
            "return_tokens_as_token_ids": True,
        }
        answer = self._post(asked | ({"model": self.model} if self.model else {}))
        found, unnamed = self._read(answer)
        if len(found) < 2:
            raise UnsupportedError(
                f"{self.url} reports {len(found)} log-probabilities of next tokens; parity needs at least 2, "
                "so start the server with them switched on."
            )
        return found, unnamed

    def _post(self, asked: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := key_for(self.url):
            headers["Authorization"] = f"Bearer {key}"
        address = f"{self.url.rstrip('/')}/completions"
        request = urllib.request.Request(address, json.dumps(asked).encode(), headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
        try:
            with opener.open(request, timeout=SECONDS) as answer:
                body = answer.read(LARGEST + 1)
        except urllib.error.HTTPError as error:
            said = _shown(f"{error.code} {error.reason}: {_refusal(error)}", key)
            raise ConfigError(f"{address} answered {said}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error) or type(error).__name__
            raise ConfigError(f"{address} cannot be reached: {_shown(str(reason), key)}.") from None
        if len(body) > LARGEST:
            raise ConfigError(f"{address} answers with more than {LARGEST >> 20} MiB; that is no completion.")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise ConfigError(f"{address} does not answer with JSON; is it a completion endpoint?") from None

    def _read(self, answer: Any) -> tuple[dict[int, float], float]:
        """The reported tokens of either form of OpenAI's protocol, as `_after` returns them."""
        try:
            reported = answer["choices"][0]["logprobs"] or {}
            if "content" in reported:
                entries = reported["content"][0].get("top_logprobs", [])
                pairs = [(one.get("id", one.get("token")), one["logprob"]) for one in entries]
            else:
                pairs = list((reported.get("top_logprobs") or [{}])[0].items())
            found = [(self._id(token), float(value)) for token, value in pairs]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise ConfigError(
                f"{self.url} answers in a form that is no completion with log-probabilities."
            ) from None
        named = {token: value for token, value in found if token is not None}
        unnamed = [value for token, value in found if token is None]
        total = sum(math.exp(min(value, 1.0)) for value in (*named.values(), *unnamed))
        if max((value for _, value in found), default=0.0) > EXCESS or total > 1 + EXCESS:
            raise ConfigError(
                f"{self.url} reports probabilities that add up to more than 1; parity needs logarithms of "
                "probabilities, and not logits or scores."
            )
        return named, max(unnamed, default=-math.inf)

    def _id(self, token: Any) -> int | None:
        """The id of a token that is named by id or by text; None where the text is ambiguous or unknown."""
        named = TOKEN_ID.fullmatch(str(token))
        if named or (isinstance(token, int) and not isinstance(token, bool)):
            number = int(named[1] if named else token)
            return number if 0 <= number < MOST_TOKENS else None
        return self.vocabulary.get(str(token))


def _refusal(error: urllib.error.HTTPError) -> str:
    """The first line of a refusal."""
    try:
        text = error.read(500).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        text = ""
    return (text.splitlines() or ["no reason"])[0][:200]


def _shown(text: str, key: str) -> str:
    """What a server said, without control characters, and without the key or the beginning of it."""
    text = "".join(c if c.isprintable() else " " for c in text)
    for n in range(len(key), 0, -1):
        if n == len(key) or n >= TELLING:
            text = text.replace(key[:n], "***")
    return text
