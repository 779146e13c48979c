"""Addresses of servers, and which key may be sent to which of them."""

import ipaddress
import os
import urllib.parse

from spectrope.core import ConfigError

KEY, OPENAI_KEY = "SPECTROPE_API_KEY", "OPENAI_API_KEY"  # Environment variables that may hold a key.
OPENAI = "api.openai.com"  # The only host that the second one is sent to.


def parsed_address(url: str) -> urllib.parse.SplitResult:
    """The parts of a server's address.

    Raises:
        ConfigError: If it is no http or https address, or holds more than host, port and path.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # No port number, or brackets without an address.
        parts, usable = urllib.parse.SplitResult("", "", "", "", ""), False
    if not usable or not url.isprintable() or not url.isascii() or " " in url:
        raise ConfigError(
            f"Endpoint.url must be an http or https address such as http://127.0.0.1:8080/v1; got {url!r}."
        )
    if parts.username or parts.password:
        raise ConfigError(f"Endpoint.url must not hold a password; set {KEY} in the environment.")
    if parts.query or parts.fragment:
        raise ConfigError(f"Endpoint.url must end with the API's path, without '?' and '#'; got {url!r}.")
    return parts


def key_for(url: str) -> str:
    """The key that is sent to an address; "" for none.

    Raises:
        ConfigError: If the key cannot be part of a request, or would travel to another machine unencrypted.
    """
    parts = parsed_address(url)
    name = OPENAI_KEY if not os.environ.get(KEY) and parts.hostname == OPENAI else KEY
    key = os.environ.get(name, "").strip()
    if not key:
        return ""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{name} must be printable ASCII without spaces; look at how it is set.")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigError(
            f"{name} would be sent to {parts.hostname} unencrypted; use https or a tunnel to 127.0.0.1, or "
            "unset it."
        )
    return key


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
