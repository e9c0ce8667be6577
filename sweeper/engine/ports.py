"""Which TCP ports a server will open beside the one it was given."""

from collections.abc import Mapping, Sequence

DP_ATTENTION_OFFSET = 233
"""0.5.23 server_args.py: with DP attention on one node init is the HTTP port plus this (minus, past 65535)."""
DP_ATTENTION_PORTS = 7
"""init, then base: first, detokenizer, rpc, metrics, scheduler input, load collector."""


NCCL_OFFSET = 5000
"""Where a server's ranks meet, below its HTTP port. Left to itself 0.5.23 draws a free one and opens it much later."""


def nccl_port(port: int) -> int:
    """For `--nccl-port`."""
    return port - NCCL_OFFSET


def port_block(port: int, *, dp_attention: bool = False) -> tuple[int, ...]:
    """Every port the server needs: its HTTP port, that of its ranks, and with DP attention those derived from it."""
    if not dp_attention:
        return (port, nccl_port(port))
    init = port + DP_ATTENTION_OFFSET
    if init + DP_ATTENTION_PORTS - 1 > 65535:
        init = port - DP_ATTENTION_OFFSET
    return (port, nccl_port(port), *range(init, init + DP_ATTENTION_PORTS))


def meeting_block(port: int) -> tuple[int, ...]:
    """What `--dist-init-addr HOST:port` takes on the first node: the port, and with DP attention the six after it."""
    return tuple(range(port, port + DP_ATTENTION_PORTS))


def port_collisions(blocks: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """One sentence for every port that two servers of a plan would both open."""
    owner: dict[int, str] = {}
    problems = []
    for name, ports in blocks.items():
        for port in ports:
            if port in owner and owner[port] != name:
                problems.append(f"{name} and {owner[port]} would both open port {port}")
            owner.setdefault(port, name)
    return tuple(problems)
