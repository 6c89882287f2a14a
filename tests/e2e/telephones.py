"""Real telephones for the end-to-end tests: baresip, and sipp with scenarios written here."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent.media.frames import Pcm
from agent.speech.clips import read_wav
from tests.e2e.support import wait_for

HOST = "127.0.0.1"
MODULES = Path("/usr/lib/baresip/modules")
CONFIG = """\
poll_method epoll
sip_listen {host}:{port}
net_interface {host}
call_max_calls 4
audio_player aufile,{folder}/played.wav
audio_source aufile,{source}
audio_alert aufile,{folder}/played.wav
audio_buffer 20-160
module_path {modules}
module g711.so
module g722.so
module opus.so
module aufile.so
module sndfile.so
module srtp.so
module_tmp uuid.so
module_tmp account.so
module_app menu.so
module_app ctrl_tcp.so
ctrl_tcp_listen {host}:{control}
snd_path {folder}
"""


def free_ports(count: int = 1, step: int = 1) -> int:
    """The first of `count` ports, `step` apart, that are free for UDP and TCP at this moment."""
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            first = int(probe.getsockname()[1])
        if first + count * step < 65_000 and all(_is_free(first + n * step) for n in range(count)):
            return first


def _is_free(port: int) -> bool:
    try:
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind((HOST, port))
            udp.bind((HOST, port))
    except OSError:
        return False
    return True


class Baresip:
    """A softphone that speaks a recording from the moment a call is up. Use as `with`.

    Args:
        folder: its own, empty.
        source: WAV file, mono, at the codec's rate.
        account: what follows the address, as `;audio_codecs=PCMU/8000/1`.
    """

    def __init__(self, folder: Path, source: Path, account: str, *, user: str = "bob") -> None:
        self.folder = folder
        # It also listens for TLS, one port above.
        self.port = free_ports(3)
        config = CONFIG.format(
            host=HOST, port=self.port, control=self.port + 2, folder=folder, source=source, modules=MODULES
        )
        (folder / "config").write_text(config)
        (folder / "accounts").write_text(f"<sip:{user}@{HOST}>;regint=0{account}\n")
        (folder / "contacts").write_text("")
        self._log = folder / "log"
        self._buffer = b""
        self.events: list[str] = []

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                ["baresip", "-f", str(self.folder)], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )
        self._control = self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)

    def _connect(self) -> socket.socket:
        until = time.monotonic() + 15
        while True:
            try:
                control = socket.create_connection((HOST, self.port + 2), timeout=1)
            except OSError:
                assert time.monotonic() < until, f"baresip did not start: {self._log.read_text()[-1500:]}"
                time.sleep(0.05)
                continue
            control.settimeout(0.05)
            return control

    def command(self, name: str, params: str = "") -> None:
        """Over its control socket (netstrings of JSON)."""
        message = json.dumps({"command": name, "params": params, "token": "t"}).encode()
        self._control.sendall(b"%d:%s," % (len(message), message))

    def dial(self, port: int, user: str = "100") -> None:
        """Call, and wait until it is up."""
        self.command("dial", f"sip:{user}@{HOST}:{port}")
        self.until("CALL_ESTABLISHED")

    def until(self, event: str, seconds: float = 20.0) -> None:
        """Wait for an event of this name."""
        wait_for(lambda: event in self._read(), f"{event} of baresip; {self.events}", seconds)

    def _read(self) -> list[str]:
        try:
            self._buffer += self._control.recv(65_536)
        except TimeoutError:
            return self.events
        while b":" in self._buffer:
            size, _, rest = self._buffer.partition(b":")
            if len(rest) < int(size) + 1:
                break
            told: dict[str, Any] = json.loads(rest[: int(size)])
            self._buffer = rest[int(size) + 1 :]
            if told.get("event"):
                self.events.append(str(told.get("type")))
        return self.events

    def heard(self) -> tuple[Pcm, int]:
        """What it received so far, and the rate; the call must be over."""
        (path,) = sorted(self.folder.glob("dump-*-dec.wav"))
        return read_wav(path)


HEAD = """\
{method} {uri} SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch={branch};rport
{routes}From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[pid]T[call_number]
To: <sip:100@[remote_ip]:[remote_port]>{tag}
Call-ID: [call_id]
CSeq: {seq} {method}
Contact: <sip:sipp@[local_ip]:[local_port]>
Max-Forwards: 70
"""
SDP = """\
Content-Type: application/sdp
Content-Length: [len]

v=0
o=sipp 1 {version} IN IP4 [local_ip]
s=-
c=IN IP4 [media_ip]
t=0 0
m=audio [auto_media_port] RTP/AVP 0 101
a=rtpmap:0 PCMU/8000
a=rtpmap:101 telephone-event/8000
a=ptime:20
a={direction}
"""
EMPTY = "Content-Length: 0\n\n"


def request(method: str, seq: int, body: str = EMPTY, *, inside: bool = False, branch: str = "[branch]") -> str:
    """One request as a scenario has it; ACKs and CANCELs take the number of their INVITE."""
    head = HEAD.format(
        method=method,
        uri="[next_url]" if inside else "sip:100@[remote_ip]:[remote_port]",
        branch=branch,
        routes="[routes]\n" if inside else "",
        tag="[peer_tag_param]" if inside else "",
        seq=seq,
    )
    retrans = "" if method == "ACK" else ' retrans="500"'
    return f"<send{retrans}><![CDATA[\n{head}{body}]]></send>\n"


def invite(seq: int = 1, direction: str = "sendrecv", *, inside: bool = False) -> str:
    """An INVITE with G.711 and key presses."""
    return request("INVITE", seq, SDP.format(version=seq, direction=direction), inside=inside)


def expect(status: int, *, optional: bool = False, says: str | None = None) -> str:
    """A response, with a line that must be in it."""
    check = ""
    if says is not None:
        found = f'<ereg regexp="{says}" search_in="msg" check_it="true" assign_to="1"/><log message="[$1]"/>'
        check = f"<action>{found}</action>"
    flags = ' optional="true"' if optional else ' rrs="true"' if status == 200 else ""
    return f'<recv response="{status}"{flags}>{check}</recv>\n'


def pause(ms: int) -> str:
    return f'<pause milliseconds="{ms}"/>\n'


def play(file: Path) -> str:
    """Send a file of mu-law as RTP, again and again."""
    return f'<nop><action><exec rtp_stream="{file},-1,0"/></action></nop>\n'


class Sipp:
    """One run of sipp, begun at once."""

    def __init__(self, folder: Path, name: str, steps: str, port: int, *options: str) -> None:
        scenario = folder / f"{name}.xml"
        scenario.write_text(
            f'<?xml version="1.0" encoding="ISO-8859-1" ?>\n<scenario name="{name}">\n{steps}</scenario>'
        )
        self._log = folder / f"{name}.log"
        self._name = name
        own = free_ports()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    *("sipp", "-sf", str(scenario), f"{HOST}:{port}", "-i", HOST, "-mi", HOST, "-p", str(own)),
                    *("-mp", str(free_ports(120)), "-nostdin", "-timeout", "40", "-timeout_error", *options),
                    *("-trace_err", "-error_file", str(folder / f"{name}.err")),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    def wait(self) -> None:
        """Every call must have gone as the scenario says."""
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
            raise
        err = self._log.parent / f"{self._name}.err"
        told = err.read_text() if err.exists() else self._log.read_text(errors="replace")
        assert code == 0, f"sipp {self._name} ended with {code}: {told[-2000:]}"


KAMAILIO = """\
#!KAMAILIO
debug=1
log_stderror=yes
fork=no
children=1
listen=udp:{host}:{port}
mpath="/usr/lib/x86_64-linux-gnu/kamailio/modules/"
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "pv.so"
loadmodule "auth.so"
modparam("usrloc", "db_mode", 0)
modparam("registrar", "min_expires", 5)
request_route {{
  if (has_totag()) {{
    if (loose_route()) t_relay();
    exit;
  }}
  if (is_method("CANCEL|ACK")) {{
    if (t_check_trans()) t_relay();
    exit;
  }}
  if (!pv_auth_check("$fd", "{password}", "0", "1")) {{
    auth_challenge("$fd", "1");
    exit;
  }}
  if (is_method("REGISTER")) {{
    save("location");
    exit;
  }}
  consume_credentials();
  record_route();
  if (!lookup("location")) {{
    sl_send_reply("404", "Not Found");
    exit;
  }}
  t_relay();
}}
"""


class Kamailio:
    """A provider: registrar and proxy that asks everybody for `PASSWORD`. Use as `with`."""

    PASSWORD = "registrar-test"

    def __init__(self, folder: Path) -> None:
        self.port = free_ports()
        self._folder = folder
        (folder / "kamailio.cfg").write_text(KAMAILIO.format(host=HOST, port=self.port, password=self.PASSWORD))

    def __enter__(self) -> Self:
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    "kamailio",
                    "-DD",
                    "-E",
                    "-m",
                    "64",
                    "-Y",
                    str(self._folder),
                    "-f",
                    str(self._folder / "kamailio.cfg"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for(lambda: not _is_free(self.port), f"kamailio; {(self._folder / 'log').read_text()[-1500:]}", 20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
