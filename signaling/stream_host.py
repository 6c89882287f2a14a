"""From an admitted client to a running call over its stream: the steps that every such door takes."""

from __future__ import annotations

from dataclasses import dataclass

from agent.nlu.hook import Session
from signaling.admission import CallRegistry
from signaling.ports import AgentLike, MakePcmPort
from signaling.streaming import StreamedCall
from signaling.tokens import Claims

__all__ = ["StreamHost"]


@dataclass(frozen=True, slots=True)
class StreamHost:
    """Where streamed calls are held."""

    agent: AgentLike
    registry: CallRegistry
    make_port: MakePcmPort

    async def carry(
        self,
        stream: StreamedCall,
        rate_hz: int,
        claims: Claims,
        session: Session,
        *,
        record: bool = False,
        ticket: str | None = None,
    ) -> None:
        """Start a call on the stream and run it to its end.

        Args:
            rate_hz: of the audio both ways.
            record: the client asks for a recording.
            ticket: of a client that has waited so far.

        Raises CallRefused, HttpFault (among them CallQueued) and ProtocolError for a call that is not taken.
        """
        places = self.registry.places
        observer = stream.on_event if places is None else places.watched(stream.on_event)
        async with self.registry.starting(claims, session.channel, ticket) as place:
            port = self.make_port(
                rate_hz,
                ticker=self.agent.ticker,
                send=stream.send_audio,
                silence_s=self.agent.settings.media.rtp_silence_s,
            )
            try:
                call = self.agent.start_call(port=port, session=session, observer=observer, record=record)
            except BaseException:
                await port.close()
                raise
            self.registry.add(claims.subject, call, None, place=place)
        try:
            await stream.run(call, port)
        finally:
            self.registry.forget(call.id)
