"""The arguments of decoding on the command line, as options."""

from __future__ import annotations

import argparse
from typing import Final

from leveret.pipeline.decoding.decode_options import DecodeOptions
from leveret.pipeline.decoding.registry import RegistryEndpoint
from leveret.pipeline.errors import BadOption

WITHOUT: Final = "is of no use without --decode"
OF_REGISTRY: Final = ("registry_user", "registry_password_file", "registry_token_file", "registry_ca_file")
OTHERS: Final = ("schema", "message", "registry", *OF_REGISTRY, "decode_prefix", "undecoded", "without_body")


def decode_options(options: argparse.Namespace) -> DecodeOptions | None:
    """Return how bodies are to be decoded; None: they are not. Raises BadOption."""
    given = [name for name in OTHERS if getattr(options, name, None)]
    if options.decode is None:
        if given:
            raise BadOption(f"--{given[0].replace('_', '-')} {WITHOUT}")
        return None
    endpoint = None
    if options.registry:
        fields = (options.registry_user, options.registry_password_file, options.registry_token_file)
        endpoint = RegistryEndpoint(options.registry, *fields, options.registry_ca_file)
    elif without := [name for name in OF_REGISTRY if name in given]:
        raise BadOption(f"--{without[0].replace('_', '-')} is of no use without --registry")
    found = DecodeOptions(
        options.decode,
        options.schema,
        endpoint,
        options.message,
        options.decode_prefix or "",
        not getattr(options, "without_body", False),
        options.undecoded,
    )
    found.require()
    return found
