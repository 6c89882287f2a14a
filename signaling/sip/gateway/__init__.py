"""The telephone door: joins SIP calls (signaling.sip), their RTP (agent.media) and the agent's conversations."""
