"""Reports the end of a run to setpoint, as lines of JSON in a file."""

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: setpoint
type: notification
short_description: Reports the end of a run to setpoint
description: Writes failed tasks, requests to run again and the statistics as lines of JSON.
"""

RUN_AGAIN = ("operator_sdk.util.requeue_after", "requeue_after")
MOST_FAILED = 64
COUNTS = ("ok", "changed", "skipped", "failures", "unreachable")


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "setpoint"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._count = 0
        self._report = open(os.environ["SETPOINT_REPORT"], "a", encoding="utf-8", buffering=1)

    def _tell(self, **words):
        self._report.write(json.dumps(words) + "\n")

    def _failed(self, result):
        # The report is bounded, and its end must fit.
        self._count += 1
        if self._count > MOST_FAILED:
            return
        # The names have changed between versions of Ansible.
        task = getattr(result, "task", None) or result._task
        values = getattr(result, "result", None) or result._result
        message = values.get("msg") or values.get("stderr") or values.get("stdout") or "unknown"
        self._tell(event="failed", task=task.name or task.action, message=str(message)[:2048])

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            self._failed(result)

    def v2_runner_on_unreachable(self, result):
        self._failed(result)

    def v2_runner_on_ok(self, result):
        task = getattr(result, "task", None) or result._task
        values = getattr(result, "result", None) or result._result
        if task.action in RUN_AGAIN and values.get("period"):
            self._tell(event="again", period=str(values["period"]))

    def v2_playbook_on_stats(self, stats):
        totals = dict.fromkeys(COUNTS, 0)
        for host in stats.processed:
            summary = stats.summarize(host)
            for name in COUNTS:
                totals[name] += summary.get(name, 0)
        self._tell(event="stats", **totals)
