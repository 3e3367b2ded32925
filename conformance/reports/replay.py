#!/usr/bin/env python3
"""Replays the golden vectors on a Redis or Valkey server: see golden-vectors.md.

    python3 replay.py [--host HOST] [--port PORT] ../testdata/*.json

It needs the package redis (python3-redis in Debian). It deletes the keys of each file before
and after the replay, so use a server without limiters of the same names.
"""

import argparse
import hashlib
import json
import sys
import time

import redis

FORMAT = 1


def run(server, scripts, call):
    """Sends EVALSHA, and EVAL if the server does not know the script."""
    words = (len(call["keys"]), *call["keys"], *call["args"])
    try:
        reply = server.evalsha(call["sha1"], *words)
    except redis.exceptions.NoScriptError:
        reply = server.eval(scripts[call["sha1"]], *words)
    return reply if isinstance(reply, list) else [reply]


def look(server, key):
    """Returns what a key holds in the form of the files, or None if it does not exist."""
    kind = server.type(key)
    if kind == "none":
        return None
    content = {"ttl": server.pttl(key)}
    if kind == "string":
        content["text"] = server.get(key)
    elif kind == "list":
        content["list"] = server.lrange(key, 0, -1)
    elif kind == "zset":
        members = server.zrange(key, 0, -1, withscores=True)
        content["set"] = [{"text": text, "score": int(score)} for text, score in members]
    return content


def same(got, want, elapsed):
    """Compares contents. A TTL may be shorter by the time that has elapsed."""
    if got is None or want is None:
        return got is want
    ttl = want["ttl"]
    return ttl - elapsed < got["ttl"] <= ttl and {**got, "ttl": ttl} == want


def replay(server, file):
    """Replays a file. It returns the number of steps, and the differences."""
    differences = []
    if file["format"] != FORMAT:
        return 0, [f"the format is {file['format']}: this program reads {FORMAT}"]
    for sha, text in file["scripts"].items():
        if hashlib.sha1(text.encode()).hexdigest() != sha:
            differences.append(f"the script {sha} has another text")
    keys = sorted({key for step in file["steps"] for call in step["calls"] for key in call["keys"]})
    if keys:
        server.delete(*keys)
    start = time.monotonic()
    for i, step in enumerate(file["steps"]):
        for call in step["calls"]:
            reply = run(server, file["scripts"], call)
            if reply != call["reply"]:
                differences.append(f"step {i}: the reply is {reply}, want {call['reply']}")
        for key in keys:
            got, want = look(server, key), step["keys"].get(key)
            if not same(got, want, 1000 * (time.monotonic() - start) + 2):
                differences.append(f"step {i}: {key} holds {got}, want {want}")
    if keys:
        server.delete(*keys)
    return len(file["steps"]), differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    server = redis.Redis(host=options.host, port=options.port, decode_responses=True)
    failed = False
    for name in options.files:
        with open(name, encoding="utf-8") as f:
            steps, differences = replay(server, json.load(f))
        print(f"{name.rsplit('/', 1)[-1]}: {steps} steps, {len(differences)} differences")
        for difference in differences:
            print("  " + difference)
        failed = failed or bool(differences)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
