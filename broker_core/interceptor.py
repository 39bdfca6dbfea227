"""The contract of interceptors under a stable name for plug-ins; it is defined in `interceptors/contract.py`."""

from leveret.errors import PreconditionFailed
from leveret.interceptors.contract import Interceptor

__all__ = ["Interceptor", "PreconditionFailed"]
