"""`x-json-field`: routes by what stands in the body. Bind with a key such as `country=DE`."""

import json

from leveret.errors import PreconditionFailed
from leveret.exchange import ExchangeType


class JsonField(ExchangeType):
    name = "x-json-field"

    def validate_binding(self, key, arguments):
        if "=" not in key:
            raise PreconditionFailed(
                f"the binding key of an x-json-field exchange is FIELD=VALUE, not '{key}'"
            )

    def route(self, message):
        try:
            fields = json.loads(message.body)
        except ValueError:
            return []  # to the alternate exchange, if there is one
        pairs = {f"{name}={value}" for name, value in fields.items()} if isinstance(fields, dict) else ()
        return [binding.destination for binding in self.exchange.bindings if binding.key in pairs]
