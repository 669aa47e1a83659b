"""The real handlers, in a process that tells everybody its number: the provider by a header, DynamoDB by its agent."""

import os

from tests.soak.plan import WORKER

os.environ[WORKER] = str(os.getpid())
os.environ["AWS_SDK_UA_APP_ID"] = str(os.getpid())

from handlers.enqueue import handler as enqueue
from handlers.process import handler as process
from handlers.reconcile import handler as reconcile

__all__ = ["enqueue", "process", "reconcile"]
