"""`serve --workers 2`: real processes, real WebSocket and WebRTC calls."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.config import AuthSettings
from signaling.tokens import TokenMinter
from tests.e2e.conftest import StartServer
from tests.e2e.fleet import calls, eventually, make_late, overview, rtc_call, workers
from tests.e2e.support import Server
from tests.e2e.test_stream import Call, Caller

SECRET = "an-end-to-end-secret-of-32-bytes!"


@pytest.fixture(scope="module")
def fleet(start_server: StartServer) -> Server:
    """Two workers of two lines each, on a development key."""
    return start_server("--workers", "2", REJOINDER_SERVER__MAX_CALLS="2")


async def none_left(server: Server) -> None:
    def idle() -> bool:
        return all(not one["calls"] and not one["reason"] for one in overview(server).values())

    await eventually(idle, "all lines free and all workers ready", 30)


async def clocks_settle() -> None:
    """Until the stalls that a test made have left the media clocks' windows of three seconds."""
    await asyncio.sleep(3.5)


async def ask(caller: Caller, text: str, expected: str) -> None:
    """A typed question, and an answer with these words."""
    await caller.ws.send_json({"type": "text", "text": text})
    await caller.until(lambda: expected in " ".join(caller.transcripts("agent")).lower(), f"an answer to {text!r}")


async def offer(server: Server, token: str = "") -> tuple[int, dict[str, str], dict[str, object]]:
    """An offer that is not answered: status, headers, problem."""
    headers = {"Authorization": f"Bearer {token or server.token}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/calls", json={"sdp": "v=0\r\n", "type": "offer"}, headers=headers) as response,
    ):
        return response.status, dict(response.headers), await response.json(content_type=None)


async def test_each_call_goes_to_the_least_loaded_worker(fleet: Server) -> None:
    await none_left(fleet)
    async with AsyncExitStack() as first:
        places = []
        for _ in range(2):
            before = calls(fleet)
            await first.enter_async_context(Call(fleet, 8_000))
            await eventually(lambda before=before: calls(fleet) != before, "the call placed")
            places.append(next(number for number, count in calls(fleet).items() if count > before[number]))
        assert sorted(places) == [1, 2]
        async with Call(fleet, 8_000), Call(fleet, 8_000):
            await eventually(lambda: calls(fleet) == {1: 2, 2: 2}, "two calls each")
        await eventually(lambda: calls(fleet) == {1: 1, 2: 1}, "two calls over")


async def test_a_webrtc_call_is_changed_and_hung_up_where_it_is(fleet: Server) -> None:
    await none_left(fleet)
    async with rtc_call(fleet) as one, rtc_call(fleet) as two:
        assert calls(fleet) == {1: 1, 2: 1}
        for call in (one, two):
            # On one connection, as a browser sends them: each is for another process than the one before.
            async with one.http.patch(call.url, json={"candidate": ""}, headers=call.auth()) as answer:
                assert answer.status == 204
        await asyncio.gather(*(call.ask("How much is delivery?", "five pounds") for call in (one, two)))
        bad = {"candidate": "candidate:nonsense"}
        async with one.http.patch(two.url, json=bad, headers=one.auth()) as answer:
            assert answer.status == 422
            assert answer.content_type == "application/problem+json"
            assert (await answer.json(content_type=None))["code"] == "candidate_unusable"
        async with one.http.delete(two.url, headers=one.auth()) as answer:
            assert answer.status == 204
        async with one.http.delete(two.url, headers=one.auth()) as answer:
            assert answer.status == 404
        await two.until(lambda: two.events[-1]["type"] == "rejoinder.ended", "the end told")
        heard = one.frames
        await one.until(lambda: one.frames > heard + 25, "the other call goes on")
        async with one.http.delete(one.url, headers=one.auth()) as answer:
            assert answer.status == 204
    await none_left(fleet)


async def test_a_caller_comes_back_to_the_worker_that_kept_the_call(fleet: Server) -> None:
    await none_left(fleet)
    async with rtc_call(fleet) as other, rtc_call(fleet, resumable=True) as lost:
        await lost.ask("How much is delivery?", "five pounds")
        before = calls(fleet)
        async with rtc_call(fleet, resume=lost.answer["resume"]["token"]) as back:
            assert back.id == lost.id
            assert back.answer["resumed"]
            assert calls(fleet) == before
            history = next(e for e in back.events if e["type"] == "rejoinder.history")
            assert "five pounds" in json.dumps(history)
            await back.ask("How do I return something?", "thirty days")
            async with back.http.delete(back.url, headers=back.auth()) as answer:
                assert answer.status == 204
        async with other.http.post(
            f"{fleet.url}/v1/calls",
            json={"type": "offer", "sdp": "v=0\r\n", "resume": lost.answer["resume"]["token"]},
            headers=other.auth(),
        ) as answer:
            assert answer.status == 404
            assert (await answer.json(content_type=None))["code"] == "resume_expired"
        await other.ask("How much is delivery?", "five pounds")
    await none_left(fleet)


async def test_an_offer_that_cannot_be_answered_takes_no_line(fleet: Server) -> None:
    await none_left(fleet)
    status, headers, problem = await offer(fleet)
    assert (status, problem["code"]) == (422, "sdp_unusable")
    assert headers["Content-Security-Policy"]
    assert calls(fleet) == {1: 0, 2: 0}


async def test_full_is_a_503_that_says_so_and_a_close_code_on_the_socket(fleet: Server) -> None:
    await none_left(fleet)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(Call(fleet, 8_000))
        await eventually(lambda: calls(fleet) == {1: 2, 2: 2}, "all lines taken")
        status, headers, problem = await offer(fleet)
        assert status == 503
        assert headers["Content-Type"] == "application/problem+json"
        assert int(headers["Retry-After"]) > 0
        assert problem["code"] == "call_refused"
        assert problem["detail"] == "every worker: all 2 lines are busy"
        async with aiohttp.ClientSession() as http:
            ws = await http.ws_connect(f"{fleet.url}/v1/stream?rate=8000&token={fleet.token}")
            told = await ws.receive_json(timeout=5)
            assert (told["code"], told["retry_after_s"]) == ("call_refused", 5)
            await ws.receive(timeout=5)
            assert ws.close_code == 1013
            async with http.get(f"{fleet.url}/readyz") as answer:
                assert answer.status == 503
                assert (await answer.json(content_type=None))["reasons"] == ["every worker: all 2 lines are busy"]
    await none_left(fleet)


async def test_a_wrong_token_and_a_foreign_origin_do_not_reach_a_worker(fleet: Server) -> None:
    status, _, problem = await offer(fleet, "not.a.token")
    assert (status, problem["code"]) == (401, "unauthorized")
    async with aiohttp.ClientSession() as http:
        ws = await http.ws_connect(f"{fleet.url}/v1/stream?rate=8000&token=nonsense")
        assert (await ws.receive_json(timeout=5))["code"] == "unauthorized"
        await ws.receive(timeout=5)
        assert ws.close_code == 4401
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(
                f"{fleet.url}/v1/stream?token={fleet.token}", headers={"Origin": "https://evil.example"}
            )
        assert refused.value.status == 403
        async with http.get(f"{fleet.url}/v1/stream?token={fleet.token}") as answer:
            assert answer.status == 426
        async with http.get(f"{fleet.url}/") as answer:
            assert answer.status == 200


async def test_metrics_are_the_sum_of_all_and_count_nothing_twice(fleet: Server) -> None:
    await none_left(fleet)
    before = fleet.metric("voice_calls_total")
    async with Call(fleet, 8_000), Call(fleet, 8_000), Call(fleet, 8_000):
        await eventually(lambda: fleet.metric("voice_calls_active") == 3, "three calls counted")
        text = fleet.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    active = [(s.labels["worker"], s.value) for s in families["voice_calls_active"].samples if s.value]
    assert sorted(value for _, value in active) == [1, 2]
    assert {worker for worker, _ in active} == {"1", "2"}
    assert re.findall(r"^# TYPE voice_calls_active .*$", text, re.MULTILINE) == ["# TYPE voice_calls_active gauge"]
    memory = {s.labels["worker"]: s.value for s in families["voice_worker_resident_memory_bytes"].samples}
    assert set(memory) == {"1", "2"}
    assert min(memory.values()) > 50e6
    await none_left(fleet)
    await eventually(lambda: fleet.metric("voice_calls_total") == before + 3, "three calls ended")


@pytest.mark.chaos
@pytest.mark.alone
async def test_a_late_media_clock_takes_no_more_calls_until_it_is_punctual_again(start_server: StartServer) -> None:
    fleet = start_server("--workers", "2", REJOINDER_SERVER__MAX_CALLS="2", REJOINDER_SERVER__MAX_LAG_MS="80")
    await none_left(fleet)
    async with Call(fleet, 8_000), Call(fleet, 8_000):
        await eventually(lambda: calls(fleet) == {1: 1, 2: 1}, "a call each")
        pids, punctual = workers(fleet), asyncio.Event()
        spoiling = [asyncio.create_task(make_late(pids[1], punctual))]
        try:
            await eventually(lambda: "clock is late" in overview(fleet)[1]["reason"], "worker 1 late")
            async with Call(fleet, 8_000):
                await eventually(lambda: calls(fleet) == {1: 1, 2: 2}, "the call on the other worker")
                status, headers, problem = await offer(fleet)
                assert status == 503
                assert int(headers["Retry-After"]) > 0
                assert "worker 1: the media clock is late" in str(problem["detail"])
                assert "worker 2: all 2 lines are busy" in str(problem["detail"])
        finally:
            punctual.set()
            await asyncio.gather(*spoiling)
        await eventually(lambda: not overview(fleet)[1]["reason"], "worker 1 punctual")
        assert workers(fleet) == pids
    await none_left(fleet)


@pytest.mark.chaos
async def test_a_worker_that_does_not_answer_gets_no_call(fleet: Server) -> None:
    await none_left(fleet)
    pids = workers(fleet)
    os.kill(pids[1], signal.SIGSTOP)
    try:
        await eventually(lambda: overview(fleet)[1]["reason"] == "does not answer", "worker 1 noticed")
        async with Call(fleet, 8_000) as one, Call(fleet, 8_000):
            await eventually(lambda: calls(fleet) == {1: 0, 2: 2}, "both calls on worker 2")
            await one.until(lambda: one.heard, "the greeting")
            assert fleet.metric("voice_calls_active") == 2
    finally:
        os.kill(pids[1], signal.SIGCONT)
    await eventually(lambda: not overview(fleet)[1]["reason"], "worker 1 back")
    assert workers(fleet) == pids
    await clocks_settle()


@pytest.mark.chaos
async def test_a_call_on_its_way_to_a_worker_that_stops_is_set_up_by_another(fleet: Server) -> None:
    await none_left(fleet)
    pids = workers(fleet)
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    try:
        # Neither is known to be stopped yet; one of them comes back.
        opening = asyncio.create_task(rtc_call(fleet).__aenter__())
        await eventually(lambda: sum(calls(fleet).values()) == 1, "the call placed")
        (held,) = [number for number, count in calls(fleet).items() if count]
        os.kill(pids[3 - held], signal.SIGCONT)
        call = await asyncio.wait_for(opening, 20)
        assert calls(fleet)[3 - held] == 1
        await call.close()
        await call.http.close()
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
    await clocks_settle()
    await none_left(fleet)


async def test_killing_a_worker_ends_its_calls_only_and_it_comes_back(fleet: Server) -> None:
    await none_left(fleet)
    restarts = fleet.metric("voice_worker_restarts_total")
    async with Call(fleet, 8_000) as a, Call(fleet, 8_000) as b:
        await eventually(lambda: calls(fleet) == {1: 1, 2: 1}, "a call each")
        async with rtc_call(fleet) as c, rtc_call(fleet) as d:
            await a.until(lambda: a.heard, "a's greeting")
            await b.until(lambda: b.heard, "b's greeting")
            await a.quiet()
            await b.quiet()
            pids = workers(fleet)
            os.kill(pids[1], signal.SIGKILL)
            await eventually(lambda: a.ws.closed or b.ws.closed, "one of the sockets closed", 5)
            (survivor,) = [caller for caller in (a, b) if not caller.ws.closed]
            await eventually(lambda: calls(fleet) == {1: 0, 2: 2}, "the lost calls forgotten", 5)
            await ask(survivor, "How much is delivery?", "five pounds")
            survivors = []
            for call in (c, d):
                async with call.http.patch(call.url, json={"candidate": ""}, headers=call.auth()) as answer:
                    assert answer.status in (204, 404)
                    survivors += [call] if answer.status == 204 else []
            (living,) = survivors
            await living.ask("How much is delivery?", "five pounds")
            await eventually(lambda: overview(fleet)[1]["state"] == "ready", "worker 1 back", 30)
            assert workers(fleet)[1] != pids[1]
            assert workers(fleet)[2] == pids[2]
            assert fleet.metric("voice_worker_restarts_total") == restarts + 1
            # The development key is the supervisor's: tokens are good for the new process too.
            async with Call(fleet, 8_000) as again:
                await eventually(lambda: calls(fleet) == {1: 1, 2: 2}, "the next call there")
                await again.until(lambda: again.heard, "the greeting")
            assert not survivor.ws.closed
    await none_left(fleet)


async def test_one_worker_can_be_renewed_without_cutting_a_call(fleet: Server) -> None:
    await none_left(fleet)
    async with Call(fleet, 8_000) as a:
        await eventually(lambda: sum(calls(fleet).values()) == 1, "the call placed")
        (number,) = [number for number, count in calls(fleet).items() if count]
        pids = workers(fleet)
        os.kill(pids[number], signal.SIGTERM)
        await eventually(lambda: overview(fleet)[number]["reason"] == "draining", "the worker drains")
        async with Call(fleet, 8_000):
            await eventually(lambda: calls(fleet)[3 - number] == 1, "the next call on the other worker")
            await a.until(lambda: a.heard, "the greeting")
            await a.ws.send_json({"type": "hangup"})
            await eventually(lambda: workers(fleet).get(number, pids[number]) != pids[number], "a new process")
            await eventually(lambda: overview(fleet)[number]["state"] == "ready", "it is ready", 30)
    await none_left(fleet)


async def test_connections_given_away_leave_no_descriptor_behind(fleet: Server) -> None:
    await none_left(fleet)

    def descriptors() -> dict[int, int]:
        pids = [fleet.process.pid, *workers(fleet).values()]
        return {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids}

    before = descriptors()
    for _ in range(8):
        async with Call(fleet, 8_000), Call(fleet, 8_000):
            await eventually(lambda: sum(calls(fleet).values()) == 2, "two calls")
        await none_left(fleet)
    await eventually(lambda: all(count <= before[pid] + 1 for pid, count in descriptors().items()), "descriptors free")


async def test_a_tokens_calls_are_counted_over_all_workers(start_server: StartServer) -> None:
    server = start_server("--workers", "2", REJOINDER_AUTH__SECRET=SECRET)
    mint = TokenMinter(AuthSettings.model_validate({"secret": SECRET})).mint
    server.token = mint("alice", calls=2)
    async with Call(server, 8_000) as one, Call(server, 8_000):
        await eventually(lambda: calls(server) == {1: 1, 2: 1}, "a call on each worker")
        status, headers, problem = await offer(server)
        assert (status, problem["code"]) == (429, "too_many_calls")
        assert headers["Retry-After"]
        assert problem["detail"] == "this token's subject may have 2 calls at once"
        async with aiohttp.ClientSession() as http:
            ws = await http.ws_connect(f"{server.url}/v1/stream?rate=8000&token={server.token}")
            assert (await ws.receive_json(timeout=5))["code"] == "too_many_calls"
            await ws.receive(timeout=5)
            assert ws.close_code == 1013
            browser_only = mint("carol", channels=["browser"])
            ws = await http.ws_connect(f"{server.url}/v1/stream?rate=8000&token={browser_only}")
            assert (await ws.receive_json(timeout=5))["code"] == "channel_not_allowed"
        status, _, _ = await offer(server, mint("bob", calls=1))
        assert status == 422
        async with rtc_call(Server(server.process, server.url, mint("bob"))) as call:
            async with call.http.delete(call.url, headers=call.auth(server.token)) as answer:
                assert answer.status == 404
            async with call.http.delete(call.url, headers=call.auth()) as answer:
                assert answer.status == 204
        await one.ws.send_json({"type": "hangup"})
        await eventually(lambda: sum(calls(server).values()) == 1, "a line free")
        status, _, _ = await offer(server)
        assert status == 422
