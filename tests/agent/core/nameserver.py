"""A name server on UDP that answers what the test wrote into it."""

from __future__ import annotations

import asyncio
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


class ScriptedNameServer(asyncio.DatagramProtocol):
    """SRV records by name, each `priority weight port target`. Silent names get no answer at all."""

    def __init__(self) -> None:
        self.srv: dict[str, list[str]] = {}
        self.silent = False
        self.rcode = dns.rcode.NOERROR
        self.asked: list[str] = []

    async def start(self) -> None:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self.transport = cast(asyncio.DatagramTransport, transport)
        self.port: int = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.AA
        name = query.question[0].name.to_text(omit_final_dot=True)
        self.asked.append(name)
        if self.silent:
            return
        if self.rcode != dns.rcode.NOERROR:
            answer.set_rcode(self.rcode)
        elif name not in self.srv:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif self.srv[name]:
            answer.answer.append(dns.rrset.from_text(f"{name}.", 5, "IN", dns.rdatatype.SRV, *self.srv[name]))
        self.transport.sendto(answer.to_wire(), addr)
