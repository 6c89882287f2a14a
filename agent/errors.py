"""Every exception Rejoinder raises on purpose.

RejoinderError
├── ConfigError          a setting is wrong; names the field and what was expected
├── EnvironmentFault     the machine lacks something; says what and how to mend it
│   └── ModelMissing     model files are absent or do not match their checksum
├── EngineError          a recogniser, synthesiser or VAD failed
│   ├── EngineOverloaded its bounded queue is full; retryable
│   ├── CoreLost         the process that holds the engine is gone, or does not answer
│   └── UnsupportedLanguage / UnsupportedVoice
├── HookError            the NLU hook or its adapter failed
│   └── HookTimeout      it missed its deadline
├── MediaError           audio or a media session is unusable
│   └── NegotiationError an SDP offer cannot be answered; names the part
├── ProtocolError        a peer's message is wrong; names the field
├── NotInterruptible     the reply asked to be heard in full
├── CallGone             the call that is to be resumed is over
├── WorkerFailed         media processes end as soon as they are started
└── CallRefused          no new call can be taken now; carries Retry-After
"""

from __future__ import annotations

__all__ = [
    "CallGone",
    "CallRefused",
    "ConfigError",
    "CoreLost",
    "EngineError",
    "EngineOverloaded",
    "EnvironmentFault",
    "HookError",
    "HookTimeout",
    "MediaError",
    "ModelMissing",
    "NegotiationError",
    "NotInterruptible",
    "ProtocolError",
    "RejoinderError",
    "UnsupportedLanguage",
    "UnsupportedVoice",
    "WorkerFailed",
]


class RejoinderError(Exception):
    """Base of all errors raised on purpose. `retryable` says whether the same request may succeed later."""

    retryable = False


class ConfigError(RejoinderError):
    """A setting is wrong. The message names the setting and what was expected."""


class EnvironmentFault(RejoinderError):
    """The machine lacks something Rejoinder needs. The message says what, and how to mend it (CLI exit code 2)."""


class ModelMissing(EnvironmentFault):
    """Model files are absent or do not match their checksum; `rejoinder models fetch` mends it."""


class EngineError(RejoinderError):
    """A recogniser, synthesiser or voice-activity detector failed on this input; the next one may work."""

    retryable = True


class EngineOverloaded(EngineError):
    """The engine's bounded queue is full."""


class CoreLost(EngineError):
    """The process that holds the engine is gone, cannot be reached, or does not answer. Another one may."""


class UnsupportedLanguage(EngineError):
    """No installed engine handles this language."""

    retryable = False


class UnsupportedVoice(EngineError):
    """No installed engine has this voice."""

    retryable = False


class HookError(RejoinderError):
    """The NLU hook raised, or its remote end answered with something that is not a reply."""

    retryable = True
    at = ""
    """Where in the hook's own code, as `file:line function`; empty when it is not known. For logs, not for callers."""


class HookTimeout(HookError):
    """The hook missed its deadline."""


class MediaError(RejoinderError):
    """Audio or a media session is unusable."""


class NegotiationError(MediaError):
    """An SDP offer cannot be answered. The message names the part at fault."""


class ProtocolError(RejoinderError):
    """A peer's message is malformed.

    `field` is the offending field as a dotted path; `code` is a short machine-readable reason.
    """

    def __init__(self, message: str, *, field: str | None = None, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.field = field
        self.code = code


class NotInterruptible(RejoinderError):
    """What the agent says now is heard in full: no cancel of the client stops it."""


class CallGone(RejoinderError):
    """The call that a caller wants to come back to is over, or was not made to be resumed."""


class WorkerFailed(RejoinderError):
    """Media processes end again and again before they are ready; their log says why."""


class CallRefused(RejoinderError):
    """No new call can be taken now. `retry_after_s` becomes the `Retry-After` header."""

    retryable = True

    def __init__(self, reason: str, *, retry_after_s: int = 5) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s
