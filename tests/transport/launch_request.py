"""The request to a submit host: to start a command on nodes."""

from __future__ import annotations

from clusterproof.plugins.transport.srun.places import Request

REQUEST: Request = {
    "name": "clusterproof-cp1",
    "names": [],
    "partition": "",
    "job": "",
    "wait_s": 60.0,
    "minutes": 2,
    "whole_s": 600.0,
    "end": ":end:",
    "most_bytes": 2**20,
    "options": [],
    "mark": "cp1:node:",
    "command": "true",
}
