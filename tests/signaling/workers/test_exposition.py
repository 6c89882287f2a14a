from prometheus_client.parser import text_string_to_metric_families

from agent.events import TurnTimings
from agent.observe.metrics import Metrics
from signaling.workers.exposition import merge


def timings() -> TurnTimings:
    return TurnTimings(
        "r1",
        endpoint_ms=400.0,
        asr_final_ms=None,
        playout_ms=1.0,
        nlu_first_ms=2.0,
        tts_first_ms=80.0,
        response_ms=600.0,
    )


def test_each_samples_process_is_told_and_each_family_described_once() -> None:
    pages = []
    for number in (1, 2, 3):
        metrics = Metrics()
        for _ in range(number):
            metrics.call_started("browser")
            metrics.turn("browser", timings())
        metrics.error("asr", ValueError('odd "{}" text'))
        pages.append((str(number), metrics.render().decode()))
    text = merge(pages)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE voice_calls_active gauge") == 1
    active = {sample.labels["worker"]: sample.value for sample in families["voice_calls_active"].samples}
    assert active == {"1": 1.0, "2": 2.0, "3": 3.0}
    counts = [s for s in families["voice_response_seconds"].samples if s.name == "voice_response_seconds_count"]
    assert sum(sample.value for sample in counts) == 6
    plain = [s for s in families["voice_endpoint_seconds"].samples if s.name == "voice_endpoint_seconds_count"]
    assert {sample.labels["worker"]: sample.value for sample in plain} == {"1": 1, "2": 2, "3": 3}


def test_nothing_is_lost_or_counted_twice() -> None:
    one, two = Metrics(), Metrics()
    one.call_started("browser")
    two.call_started("websocket")
    lines = [line for page in (one, two) for line in page.render().decode().splitlines() if line[0] != "#"]
    merged = merge([("1", one.render().decode()), ("2", two.render().decode())])
    samples = [line for line in merged.splitlines() if line[0] != "#"]
    assert len(samples) == len(lines) == len(set(samples))
    assert all('worker="' in line for line in samples)


def test_a_family_of_one_process_only_is_kept() -> None:
    text = merge([("1", "# HELP a x\n# TYPE a gauge\na 1.0\n"), ("2", '# HELP b y\n# TYPE b gauge\nb{c="d {e"} 2.0\n')])
    assert text.splitlines() == [
        "# HELP a x", "# TYPE a gauge", 'a{worker="1"} 1.0',
        "# HELP b y", "# TYPE b gauge", 'b{worker="2",c="d {e"} 2.0',
    ]  # fmt: skip


def test_no_page_is_no_text() -> None:
    assert merge([]) == ""
