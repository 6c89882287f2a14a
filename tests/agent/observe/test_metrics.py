from agent.errors import EngineError
from agent.events import TurnTimings
from agent.observe.metrics import CONTENT_TYPE, MAX_ERROR_TYPES, Metrics, process_metrics


def timings(**values: float | None) -> TurnTimings:
    names = ("endpoint_ms", "asr_final_ms", "nlu_first_ms", "tts_first_ms", "playout_ms", "response_ms")
    return TurnTimings("resp_1", **{name: values.get(name) for name in names}, cache="hit")


def test_a_turn_fills_each_histogram_in_seconds() -> None:
    metrics = Metrics()
    metrics.turn(
        "browser",
        timings(endpoint_ms=500, asr_final_ms=100, nlu_first_ms=5, tts_first_ms=20, playout_ms=12, response_ms=637),
    )
    assert metrics.value("voice_response_seconds_sum", channel="browser", cache="hit") == 0.637
    assert metrics.value("voice_response_seconds_bucket", channel="browser", cache="hit", le="0.5") == 0
    assert metrics.value("voice_response_seconds_bucket", channel="browser", cache="hit", le="0.75") == 1
    assert metrics.value("voice_endpoint_seconds_sum") == 0.5
    assert metrics.value("voice_asr_final_seconds_sum") == 0.1
    assert metrics.value("voice_nlu_first_text_seconds_sum") == 0.005
    assert metrics.value("voice_tts_first_audio_seconds_sum", voice_class="stock", cache="hit") == 0.02
    assert metrics.value("voice_playout_seconds_sum") == 0.012


def test_parts_that_did_not_take_place_are_not_counted() -> None:
    metrics = Metrics()
    metrics.turn("sip", timings(tts_first_ms=30))
    assert metrics.value("voice_endpoint_seconds_count") == 0
    assert metrics.value("voice_response_seconds_count", channel="sip", cache="hit") == 0
    assert metrics.value("voice_tts_first_audio_seconds_count", voice_class="stock", cache="hit") == 1


def test_active_calls_go_up_and_down_and_are_counted_by_outcome() -> None:
    metrics = Metrics()
    metrics.call_started("browser")
    metrics.call_started("browser")
    metrics.call_ended("browser", "lost")
    metrics.call_refused("websocket")
    assert metrics.value("voice_calls_active", channel="browser") == 1
    assert metrics.value("voice_calls_total", channel="browser", outcome="lost") == 1
    assert metrics.value("voice_calls_total", channel="websocket", outcome="refused") == 1


def test_unknown_label_values_become_other_and_error_types_are_bounded() -> None:
    metrics = Metrics()
    metrics.interruption("call_8f3a")  # type: ignore[arg-type]
    assert metrics.value("voice_interruptions_total", kind="other") == 1
    for number in range(MAX_ERROR_TYPES + 5):
        metrics.error("tts", type(f"Fault{number}", (Exception,), {}))
    assert metrics.value("voice_errors_total", part="tts", type="other") == 5
    metrics.error("nowhere", EngineError("x"))
    assert metrics.value("voice_errors_total", part="other", type="other") == 1


def test_frames_and_lag_are_counted() -> None:
    metrics = Metrics()
    metrics.media_frames("concealed", 3)
    metrics.ticker_lag(0.003)
    metrics.ticker_lag(-0.001)
    assert metrics.value("voice_media_frames_total", kind="concealed") == 3
    assert metrics.value("voice_ticker_lag_seconds_bucket", le="0.001") == 1
    assert metrics.value("voice_ticker_lag_seconds_count") == 2


def test_two_facades_do_not_share_numbers() -> None:
    first, second = Metrics(), Metrics()
    first.call_started("browser")
    assert second.value("voice_calls_active", channel="browser") == 0


def test_render_is_prometheus_text_with_every_metric_of_this_stage() -> None:
    text = Metrics().render().decode()
    for name in (
        "voice_response_seconds",
        "voice_endpoint_seconds",
        "voice_asr_final_seconds",
        "voice_nlu_first_text_seconds",
        "voice_tts_first_audio_seconds",
        "voice_playout_seconds",
        "voice_calls_active",
        "voice_calls_total",
        "voice_interruptions_total",
        "voice_media_frames_total",
        "voice_ticker_lag_seconds",
        "voice_errors_total",
    ):
        assert f"# TYPE {name} " in text
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


def test_the_process_has_one_facade_with_the_interpreters_numbers() -> None:
    assert process_metrics() is process_metrics()
    assert b"process_resident_memory_bytes" in process_metrics().render()
