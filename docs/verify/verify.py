#!/usr/bin/env python3
"""An independent verifier of a Skep ledger, in Python's standard library alone.

    verify.py STATE/ledger [STATE/keys/ledger.pub]

It checks every hash, every chain, every count, the chain of the seals, that each
seal holds what the journal holds where it was cut, and that all seals name one
key (the given one). It does NOT check the signatures: the standard library has
neither Ed25519 nor ML-DSA-65; `skep ledger verify` does. Nor does it check the
CRC of a frame, which finds torn writes and not tampering.

Exit status: 0 valid, 10 empty, 11 unsigned tail, 12 truncated, 13 altered,
14 forked, 15 wrong key, 16 unknown version, 1 cannot read.
"""
import hashlib
import json
import os
import sys

KINDS = set("""cell.declared cell.started cell.stopped exec call.denied flow.intent flow.outcome flow.denied
name.resolved secret.used right.granted right.derived right.revoked right.refused budget.held budget.settled
budget.warned budget.exhausted model.admitted model.settled snapshot.captured snapshot.rolledback snapshot.forked
diff.shown merge.applied merge.refused approval.opened approval.decided file.dropped note recovery seal""".split())
MEMBERS = {"agent", "body", "cell", "kind", "prev", "seq", "time", "v"}


def fail(status, text):
    print({12: "truncated", 13: "altered", 14: "forked", 15: "wrong key", 16: "unknown version"}[status] + ": " + ascii(text))
    sys.exit(status)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def genesis(cell):
    return sha(b"skep-ledger-v1\0" + cell.encode())


def frames(path, position, what):
    """Yields (position, entry's bytes, entry) for each frame of a file."""
    with open(path, "rb") as f:
        while head := f.read(8):
            size = int.from_bytes(head[:4], "little")
            raw = f.read(size)
            if len(head) < 8 or len(raw) < size:
                fail(12, f"{what}: torn frame at {position}")
            try:
                e = json.loads(raw)
                again = json.dumps(e, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            except (ValueError, RecursionError):
                fail(13, f"{what}: no JSON at {position}")
            if again != raw or type(e) is not dict:
                fail(13, f"{what}: not canonical at {position}")
            if e.get("v") != "1" or e.get("kind") not in KINDS:
                fail(16, f"{what}: version {e.get('v')}, kind {e.get('kind')} at {position}")
            if set(e) != MEMBERS or not all(type(e[m]) is str for m in MEMBERS - {"body"}) or not e["seq"].isdigit():
                fail(13, f"{what}: not an entry at {position}")
            yield position, raw, e
            position += 8 + size


def seals(path):
    """Checks the chain of seals; returns them as (cell, body), without signatures."""
    prev, last, out = genesis("seals"), {}, []
    for _, raw, e in frames(path, 0, "seals") if os.path.exists(path) else ():
        n, cell, s = len(out) + 1, e["cell"], e["body"]
        if int(e["seq"]) != n or e["prev"] != prev:
            fail(12 if int(e["seq"]) > n else 14, f"seal {n} of cell {cell} does not follow the one before it")
        segment, end, before = last.get(cell, (0, 0, "0" * 64))
        first, stop = int(s["first"]), int(s["last"])
        if (int(s["segment"]), first, int(s["count"]), s["before"]) != (segment + 1, end + 1, stop - first + 1, before):
            fail(14, f"seal {n} does not join the segments of cell {cell}")
        prev = sha(raw)
        last[cell] = (segment + 1, stop, prev)
        out.append((cell, s))
    return out, last, prev


def main():
    ledger = sys.argv[1]
    sealed, ends, checkpoint = seals(os.path.join(ledger, "seals"))
    keys = {s["key"] for _, s in sealed}
    if len(sys.argv) > 2:
        with open(sys.argv[2], "rb") as f:
            keys.add(sha(f.read().rstrip(b"\n")))
    if len(keys) > 1:
        fail(15, f"more than one key: {sorted(keys)}")
    chains, due, position, count = {}, 0, 0, 0

    def cut(upto):
        """Holds the seals that were cut up to here against the chains."""
        nonlocal due
        while due < len(sealed) and int(sealed[due][1]["at"]) <= upto:
            cell, s = sealed[due]
            seq, end = chains.get(cell, (0, ""))
            if seq < int(s["last"]):
                fail(12, f"cell {cell}: sealed entries after {seq} are missing")
            if (seq, end) != (int(s["last"]), s["hash"]):
                fail(13, f"cell {cell}: seal {due + 1} signed another entry {s['last']}")
            due += 1

    journal = os.path.join(ledger, "journal")
    for name in sorted(os.listdir(journal)):
        if name != f"{position:016x}":
            fail(12, f"journal: {name} where {position:016x} should be")
        for at, raw, e in frames(os.path.join(journal, name), position, "journal"):
            cut(at)
            cell, seq = e["cell"], int(e["seq"])
            n, end = chains.get(cell, (0, genesis(cell)))
            if seq != n + 1:
                fail(14 if seq <= n else 12, f"cell {cell}: entry {seq} after entry {n}")
            if e["prev"] != end:
                fail(13, f"cell {cell}: entry {max(n, 1)} has another hash")
            chains[cell] = (seq, sha(raw))
            count += 1
        position += os.path.getsize(os.path.join(journal, name))
    cut(float("inf"))
    tail = sum(seq - ends.get(cell, (0, 0))[1] for cell, (seq, _) in chains.items())
    status, word = (10, "empty") if count == 0 else (11, "unsigned tail") if tail else (0, "valid")
    print(f"{word}: {count} entries of {len(chains)} cells, {len(sealed)} seals up to {checkpoint}, {tail} entries not sealed; signatures NOT checked")
    sys.exit(status)


if __name__ == "__main__":
    try:
        main()
    except (OSError, IndexError, KeyError, TypeError, ValueError) as e:
        print("cannot read:", ascii(e))
        sys.exit(1)
