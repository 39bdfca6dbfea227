"""The contract of interceptors under a stable name for plug-ins; it is defined in `interceptors/interceptor.py`."""

from broker_core.errors import PreconditionFailed
from broker_core.interceptors.interceptor import Interceptor

__all__ = ["Interceptor", "PreconditionFailed"]
