from __future__ import annotations

import itertools
import lzma
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.headers import RANK_TAG, TIME_HINT, Clock, Header, Layouts, parse, stamped

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")


def us(text: str) -> int:
    """Microseconds of an ISO time, UTC where it names no zone."""
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def clock(near: str | None = "2024-06-01", mtime: str | None = None, tz: str = "UTC") -> Clock:
    return Clock(ZoneInfo(tz), us(mtime) if mtime else None, us(near) if near else None)


def told(line: bytes, when: Clock | None = None, at: int | None = None) -> tuple[Any, ...]:
    """The message, then all that the headers tell: times as ISO, `~` before an assumed zone."""
    header = parse(line, when or clock(), at)
    text = header.text if header.text is not None else line[header.body : header.end]
    fields: dict[str, Any] = {}
    if header.ts is not None:
        time = datetime(1970, 1, 1) + timedelta(microseconds=header.ts)
        fields["ts"] = "~" * header.tz_assumed + time.isoformat()
        assert header.ts_source == "own"
    elif header.ts_source != "none":
        fields["ts"] = header.ts_source
    for name in ("level", "rank", "local_rank", "host", "pid", "stream"):
        if getattr(header, name) is not None:
            fields[name] = getattr(header, name)
    if header.partial:
        fields["partial"] = True
    if header.repeats != 1:
        fields["repeats"] = header.repeats
    return text, fields


SLURM = {"stream": "scheduler"}
TORCHRUN = {"stream": "launcher"}

LINES: list[tuple[bytes, bytes | None, dict[str, Any]]] = [  # None: the line is the message
    # nothing to strip
    (b"", None, {}),
    (b"Traceback (most recent call last):", None, {}),
    (b'  File "/opt/a.py", line 4, in f', None, {}),
    (b"RuntimeError: CUDA error: x", None, {}),
    (b"python3: /opt/a.cpp:223: int f(): Assertion", None, {}),
    (b"eth0: link down", None, {}),
    (b"[deepspeed] OVERFLOW! Rank 0 skips", None, {}),
    (b"24/1752 [01:08<1:22:56,  2.88s/it]", None, {}),
    (b"ran for 600013 ms, elapsed 00:01:08", None, {}),
    (b"saved /a/2024-01-02_03:04:05/x.pt", None, {}),
    # containers and collectors
    (
        b'{"log":"step \\u001b[31m7\\u001b[0m \\"a\\"\\n","stream":"stderr",'
        b'"time":"2024-01-02T03:04:05.123456789Z"}',
        b'step 7 "a"',
        {"ts": "2024-01-02T03:04:05.123456"},
    ),
    (
        b'{"log":"[2024-01-02 03:04:04,900] [ERROR] [a.py:1:f] no","time":"2024-01-02T03:04:05Z"}',
        b"no",
        {"ts": "~2024-01-02T03:04:04.900000", "level": "error", "partial": True},
    ),
    (
        b'{"level":"warn","ts":1704164645.5,"msg":"slow disk"}',
        b"slow disk",
        {"ts": "2024-01-02T03:04:05.500000", "level": "warn"},
    ),
    (b'{"log": 5}', None, {}),
    (b'{"loss": 3.5, "time": 7}', None, {}),
    (b'{"log":"cut in the mid', None, {}),
    (
        b"2024-01-02T03:04:05.123456789Z stderr F boom",
        b"boom",
        {"ts": "2024-01-02T03:04:05.123456"},
    ),
    (
        b"2024-01-02T03:04:05.123456789+02:00 stdout P begin of ",
        b"begin of ",
        {"ts": "2024-01-02T01:04:05.123456", "partial": True},
    ),
    (b"2024-01-02T03:04:05.123456789Z text: x", b"text: x", {"ts": "2024-01-02T03:04:05.123456"}),
    (
        b"[pod/trainer-0/main] 2024-01-02T03:04:05.123456789Z [rank4]: x",
        b"x",
        {"ts": "2024-01-02T03:04:05.123456", "rank": 4},
    ),
    (
        b"2m01s       Warning   OOMKilling   node/gpu-7   Memory cgroup out of memory",
        b"OOMKilling   node/gpu-7   Memory cgroup out of memory",
        {"level": "warn", "stream": "k8s-event"},
    ),
    (
        b"ml-jobs   12s (x5 over 3m)   Normal   Pulled   pod/x   Image pulled",
        b"Pulled   pod/x   Image pulled",
        {"level": "info", "stream": "k8s-event", "repeats": 5},
    ),
    (
        b"  Warning  FailedScheduling  5s (x2 over 3m)  default-scheduler  0/8 nodes",
        b"FailedScheduling  5s (x2 over 3m)  default-scheduler  0/8 nodes",
        {"level": "warn", "stream": "k8s-event", "repeats": 2},
    ),
    # syslog and the kernel
    (
        b"Jun 21 14:03:14 tray12 kernel: [903122.401188] NVRM: Xid (PCI:0019:01:00): 149",
        b"NVRM: Xid (PCI:0019:01:00): 149",
        {"ts": "~2024-06-21T14:03:14", "host": "tray12", "stream": "kernel"},
    ),
    (
        b"Jun  1 04:05:06 n1 sshd(pam_unix)[19939]: check pass; user unknown",
        b"check pass; user unknown",
        {"ts": "~2024-06-01T04:05:06", "host": "n1", "pid": 19939},
    ),
    (
        b"Jul  1 09:00:00 n1 slurmd[12]: error: no such step",
        b"no such step",
        {"ts": "~2024-07-01T09:00:00", "host": "n1", "pid": 12, "level": "error"} | SLURM,
    ),
    (
        b"Jun 21 14:03:14 INFO main: up",
        b"main: up",
        {"ts": "~2024-06-21T14:03:14", "level": "info"},
    ),
    (
        b"<13>Jun 21 14:03:14 node7 prog[12]: hi",
        b"hi",
        {"ts": "~2024-06-21T14:03:14", "host": "node7", "pid": 12, "level": "info"},
    ),
    (
        b"<34>1 2003-10-11T22:14:15.003Z m1.example.com su 77 ID47 [a b=\"c\"] 'su root' failed",
        b"'su root' failed",
        {"ts": "2003-10-11T22:14:15.003000", "level": "fatal", "host": "m1", "pid": 77},
    ),
    (
        b"2024-01-02T03:04:05.1+00:00 Node07-ib0.a.b kernel: nvme nvme0: timeout",
        b"nvme nvme0: timeout",
        {"ts": "2024-01-02T03:04:05.100000", "host": "node07", "stream": "kernel"},
    ),
    (
        b"2024-01-02T03:04:05+0100 localhost python[77]: hello",
        b"hello",
        {"ts": "2024-01-02T02:04:05", "pid": 77},
    ),
    (b"2024-01-02T03:04:05Z Loading model: a", b"Loading model: a", {"ts": "2024-01-02T03:04:05"}),
    (
        b"Tue 2024-01-02 03:04:05 UTC node7 kernel: x",
        b"x",
        {"ts": "2024-01-02T03:04:05", "host": "node7", "stream": "kernel"},
    ),
    (
        b"1704164645.123456 node7 kernel: x",
        b"x",
        {"ts": "2024-01-02T03:04:05.123456", "host": "node7", "stream": "kernel"},
    ),
    (b"[  2017.551145] nvme nvme1: x", b"nvme nvme1: x", {"ts": "dmesg", "stream": "kernel"}),
    (b"[   12.345678][  T123] 4: x", b"4: x", {"ts": "dmesg", "stream": "kernel"}),
    (b"<4>[  201.668783] PGD 0", b"PGD 0", {"ts": "dmesg", "stream": "kernel", "level": "warn"}),
    (
        b"6,3964,206764307,-;nvidia-nvswitch2: open",
        b"nvidia-nvswitch2: open",
        {"ts": "dmesg", "stream": "kernel", "level": "info"},
    ),
    (
        b"kern  :warn  : 2025-01-21T04:41:44,285060+00:00 VFS: file-max limit 1000000 reached",
        b"VFS: file-max limit 1000000 reached",
        {"ts": "2025-01-21T04:41:44.285060", "level": "warn", "stream": "kernel"},
    ),
    (
        b"[Sun Feb 23 16:24:18 2025] NVRM: GPU Board",
        b"NVRM: GPU Board",
        {"ts": "~2025-02-23T16:24:18", "stream": "kernel"},
    ),
    (
        b"[Feb 25 2025 13:59:45] [INFO] [tid 1803] Received an inband message",
        b"Received an inband message",
        {"ts": "~2025-02-25T13:59:45", "level": "info"},
    ),
    (b"Fri Jul 01 08:16:53 PDT 2005 up", b"up", {"ts": "~2005-07-01T08:16:53"}),
    # older machines
    (
        b"2005-06-05-01.55.06.697467 R11-M0-NB-C:J07-U11 RAS KERNEL FATAL rts panic! - stopping",
        b"rts panic! - stopping",
        {"ts": "~2005-06-05T01:55:06.697467", "level": "fatal", "host": "r11-m0-nb-c:j07-u11"},
    ),
    (
        b"KERNDTLB 1117838570 2005.06.03 R2-M1 2005-06-03-15.42.50.675872 R2-M1 RAS KERNEL INFO x",
        b"x",
        {"ts": "2005-06-03T22:42:50.675872", "level": "info", "host": "r2-m1"},
    ),
    (
        b"- 1131566461 2005.11.09 dn228 Nov 9 12:01:01 dn228/dn228 crond(pam_unix)[2915]: closed",
        b"closed",
        {"ts": "2005-11-09T20:01:01", "host": "dn228", "pid": 2915},
    ),
    (
        b"134681 node-246 unix.hw state_change.unavailable 1077804742 1 Component State Change",
        b"Component State Change",
        {"ts": "2004-02-26T14:12:22", "host": "node-246"},
    ),
    (
        b"081109 203615 148 INFO dfs.DataNode: terminating",
        b"dfs.DataNode: terminating",
        {"ts": "~2008-11-09T20:36:15", "level": "info", "pid": 148},
    ),
    (
        b"17/06/09 20:10:40 INFO executor.Backend: Registered",
        b"executor.Backend: Registered",
        {"ts": "~2017-06-09T20:10:40", "level": "info"},
    ),
    (
        b"2015-10-18 18:01:47,978 WARN [IPC Server handler 4 on 62270] org.apache.A: late",
        b"org.apache.A: late",
        {"ts": "~2015-10-18T18:01:47.978000", "level": "warn"},
    ),
    (
        b"2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:2181:F@774] - time out: 3200",
        b"time out: 3200",
        {"ts": "~2015-07-29T17:41:44.747000", "level": "info"},
    ),
    (
        b"nova-api.log.1.2017-05-16_13:53:08 2017-05-16 00:00:00.008 25746 INFO nova [req-3] x",
        b"nova [req-3] x",
        {"ts": "~2017-05-16T00:00:00.008000", "level": "info", "pid": 25746},
    ),
    # launchers
    (b"  3: hello", b"hello", {"rank": 3}),
    (b"12:   File x", b"  File x", {"rank": 12}),
    (
        b" 0: INFO:megatron.core.utils:[2026-05-20 13:01:10] | MnRtt/Rnk: 3453.08ms/8",
        b"MnRtt/Rnk: 3453.08ms/8",
        {"ts": "~2026-05-20T13:01:10", "level": "info", "rank": 0},
    ),
    (
        b"worker-3: [2024-01-01 10:00:00,123] [INFO] [runner.py:568:main] x",
        b"x",
        {"ts": "~2024-01-01T10:00:00.123000", "level": "info", "host": "worker-3"} | TORCHRUN,
    ),
    (
        b"gpua7.lan: Traceback (most recent call last):",
        b"Traceback (most recent call last):",
        {"host": "gpua7"},
    ),
    (
        b"[1,26]<stderr>:2019-04-20 10:14:02.551100: I tensorflow/a/b.cc:152] opened",
        b"opened",
        {"ts": "~2019-04-20T10:14:02.551100", "level": "info", "rank": 26},
    ),
    (
        b"[1,0]<stderr>:[2019-04-20 10:15:13.858146: W horovod/op.cc[1,0]<stderr>::588] Stalled",
        b"horovod/op.cc[1,0]<stderr>::588] Stalled",
        {"ts": "~2019-04-20T10:15:13.858146", "level": "warn", "rank": 0},
    ),
    (b"[1,mpirank:3,algo-1]<stdout>:x", b"x", {"rank": 3, "host": "algo-1"}),
    (b"[default3]:  x", b"  x", {"local_rank": 3}),
    (b"[rank3]:   File x", b"  File x", {"rank": 3}),
    (b"[rank3000000000]: x", b"x", {}),
    (b"[rank99999999999999999999]: x", None, {}),
    (b"[Rank 3] x", b"x", {"rank": 3}),
    (b"[PG ID 2 PG GUID 9 Rank 1] x", b"x", {}),
    (b"[PG ID 2 PG GUID 0(default_pg) Rank 1] x", b"x", {"rank": 1}),
    (b"[PG 0 Rank 1] x", b"x", {"rank": 1}),
    (b"[PG 1 Rank 1] x", b"x", {}),
    (b"  what():  [PG ID 0 PG GUID 0 Rank 1] x", None, {"rank": 1}),
    (
        b"srun: error: node-k02: tasks 0-7: Exited with exit code 1",
        None,
        {"level": "error", "stream": "launcher"},
    ),
    (b"mpirun: Forwarding signal 20 to job", None, {"stream": "launcher"}),
    (
        b"slurmstepd: error: *** JOB 5 ON p5-12 CANCELLED AT 2025-01-20T02:50:44 DUE TO X ***",
        None,
        {"ts": "~2025-01-20T02:50:44", "level": "error", "host": "p5-12", "stream": "scheduler"},
    ),
    (
        b"[2026-09-21T10:00:00.123] error: Nodes n[1-2] not responding",
        b"Nodes n[1-2] not responding",
        {"ts": "~2026-09-21T10:00:00.123000", "level": "error", "stream": "scheduler"},
    ),
    (
        b"[2026-09-21T10:00:00.123] [1234.batch] error: x",
        b"x",
        {"ts": "~2026-09-21T10:00:00.123000", "level": "error", "stream": "scheduler"},
    ),
    (
        b"WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 3311",
        b"torch.distributed.elastic.multiprocessing.api:Sending process 3311",
        {"level": "warn", "stream": "launcher"},
    ),
    (
        b"[2024-02-01 10:04:41,318] torch.distributed.elastic.multiprocessing.api: [ERROR] failed",
        b"failed",
        {"ts": "~2024-02-01T10:04:41.318000", "level": "error", "stream": "launcher"},
    ),
    (
        b"W0609 12:00:05.641000 2041 site-packages/torch/distributed/elastic/api.py:897] Sending",
        b"Sending",
        {"ts": "~2024-06-09T12:00:05.641000", "level": "warn", "pid": 2041, "stream": "launcher"},
    ),
    (
        b"  time      : 2025-05-21_15:43:03",
        None,
        {"ts": "~2025-05-21T15:43:03"},
    ),
    # libraries
    (
        b"\x1b[36m(Actor pid=18400, ip=10.0.0.3)\x1b[0m bad\x1b[32m [repeated 7x across cluster]",
        b"bad",
        {"pid": 18400, "host": "10.0.0.3", "repeats": 7},
    ),
    (b"[36m(Actor pid=18400)[0m bad", b"bad", {"pid": 18400}),
    (b"bad [repeated 7x across cluster]", None, {}),
    (
        b"(raylet) [2026-02-03 02:27:15,910 I 811 812] (raylet) node_manager.cc:471: Sending",
        b"node_manager.cc:471: Sending",
        {"ts": "~2026-02-03T02:27:15.910000", "level": "info", "pid": 811},
    ),
    (
        b"(Worker_TP3 pid=188) ERROR 05-09 22:17:06 [executor.py:822] RuntimeError: x",
        b"RuntimeError: x",
        {"ts": "~2024-05-09T22:17:06", "level": "error", "rank": 3, "pid": 188},
    ),
    (b"(EngineCore_DP0 pid=210)   File x", b"  File x", {"pid": 210}),
    (
        b"INFO 05-09 00:48:11 [file.py:12] up",
        b"up",
        {"ts": "~2024-05-09T00:48:11", "level": "info"},
    ),
    (
        b"[2025-09-09 12:00:00,118] [INFO] [logging.py:107:log_dist] [Rank 0] saved",
        b"saved",
        {"ts": "~2025-09-09T12:00:00.118000", "level": "info", "rank": 0},
    ),
    (
        b"[2025-09-09 12:00:00,118] [ERROR] [launch.py:335:sigkill_handler] exits",
        b"exits",
        {"ts": "~2025-09-09T12:00:00.118000", "level": "error", "stream": "launcher"},
    ),
    (
        b"[2025-09-09 12:00:00,118] [INFO] [config.py:1:print]   world_size ... 16",
        b"  world_size ... 16",
        {"ts": "~2025-09-09T12:00:00.118000", "level": "info"},
    ),
    (
        b"[2025-09-09 12:00:00,118] [INFO] [a.py:1:f] 2025-09-08 11:00:00 was the last",
        b"2025-09-08 11:00:00 was the last",
        {"ts": "~2025-09-09T12:00:00.118000", "level": "info"},
    ),
    (
        b"[2025-09-09 12:00:00,118] [INFO] 00:01:08 elapsed",
        b"00:01:08 elapsed",
        {"ts": "~2025-09-09T12:00:00.118000", "level": "info"},
    ),
    (
        b"[rank3]:[E602 11:15:44.120338104 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog",
        b"Watchdog",
        {"ts": "~2024-06-02T11:15:44.120338", "level": "error", "rank": 3},
    ),
    (
        b"[rank3]:[E602 11:15:44.120338104 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 7 Rank 1] x",
        b"x",
        {"ts": "~2024-06-02T11:15:44.120338", "level": "error", "rank": 3},
    ),
    (
        b"[E ProcessGroupNCCL.cpp:828] [Rank 64] Watchdog",
        b"Watchdog",
        {"level": "error", "rank": 64},
    ),
    (
        b"node08:2188:2241 [0] transport/net_ib.cc:1280 NCCL WARN NET/IB : x",
        b"transport/net_ib.cc:1280 NCCL WARN NET/IB : x",
        {"level": "warn", "host": "node08", "pid": 2188, "local_rank": 0},
    ),
    (
        b"[2025-01-01 10:00:00] r6i4n5-ib0:1:2 [3] NCCL INFO x",
        b"NCCL INFO x",
        {"ts": "~2025-01-01T10:00:00", "level": "info", "host": "r6i4n5", "pid": 1}
        | {"local_rank": 3},
    ),
    (
        b"2023-05-05 10:12:13,123: rank1[813][MainThread]: DEBUG: composer.trainer: x",
        b"composer.trainer: x",
        {"ts": "~2023-05-05T10:12:13.123000", "level": "debug", "rank": 1, "pid": 813},
    ),
    (
        b"[2024-04-20 15:55:06] CRITICAL [olmo.util:158, rank=6] Uncaught",
        b"Uncaught",
        {"ts": "~2024-04-20T15:55:06", "level": "fatal", "rank": 6},
    ),
    (
        b"E0000 00:00:1744712011.318802   12 cuda_dnn.cc:8310] Unable",
        b"Unable",
        {"ts": "2025-04-15T10:13:31.318802", "level": "error", "pid": 12},
    ),
    (
        b"[1746776891.974497] [host-611:611  :0]     ucp_context.c:1268 UCX  WARN  transports",
        b"ucp_context.c:1268 UCX  WARN  transports",
        {"ts": "2025-05-09T07:48:11.974497", "level": "warn", "host": "host-611", "pid": 611},
    ),
    (
        b"[INFO|trainer.py:1145] 2021-05-27 21:32:10,182 >> ***** Running training *****",
        b"***** Running training *****",
        {"ts": "~2021-05-27T21:32:10.182000", "level": "info"},
    ),
    (
        b"[INFO] 2021-03-09 00:01:36,519 api: Starting",
        b"api: Starting",
        {"ts": "~2021-03-09T00:01:36.519000", "level": "info"},
    ),
    (b"[INFO:swift] End: 2026-07-10 04:52:06", b"End: 2026-07-10 04:52:06", {"level": "info"}),
    (
        b"2023-07-03 11:20:41,318 - ERROR: Exception",
        b"Exception",
        {"ts": "~2023-07-03T11:20:41.318000", "level": "error"},
    ),
    (
        b"2023-07-03 11:20:41,318 - a.manager - INFO - Saved",
        b"Saved",
        {"ts": "~2023-07-03T11:20:41.318000", "level": "info"},
    ),
    (
        b"2024-01-02 03:04:05.678 | INFO     | module:func:12 - x",
        b"x",
        {"ts": "~2024-01-02T03:04:05.678000", "level": "info"},
    ),
    (
        b"[2026-04-24 03:10:40,552][auto][INFO] - saving",
        b"saving",
        {"ts": "~2026-04-24T03:10:40.552000", "level": "info"},
    ),
    (
        b"2024-11-04 00:00:01,100 [Rank 00] INFO Job a",
        b"Job a",
        {"ts": "~2024-11-04T00:00:01.100000", "level": "info", "rank": 0},
    ),
    (
        b"[03/20/23 09:15:02] INFO     colossalai - colossalai - INFO: memory",
        b"memory",
        {"ts": "~2023-03-20T09:15:02", "level": "info"},
    ),
    (b"03/20/23 10:11:12 x", b"x", {"ts": "~2023-03-20T10:11:12"}),
    (b"20/03/2023 10:11:12 x", b"x", {"ts": "~2023-03-20T10:11:12"}),
    (
        b"01/20/2025 03:11:02 - INFO - __main__ - resuming",
        b"__main__ - resuming",
        {"ts": "~2025-01-20T03:11:02", "level": "info"},
    ),
    (b"06/02 11:04:10 [INFO] | >> up", b"up", {"ts": "~2024-06-02T11:04:10", "level": "info"}),
    (
        b" [2026-05-20 13:01:10.123456] iteration     2100/   50000 |",
        b"iteration     2100/   50000 |",
        {"ts": "~2026-05-20T13:01:10.123456"},
    ),
    (
        b"[before the start of training step] datetime: 2021-05-23 08:41:06 ",
        None,
        {"ts": "~2021-05-23T08:41:06"},
    ),
    (
        b"[NeMo W 2024-01-02 03:04:05 nemo_logging:349] x",
        b"x",
        {"ts": "~2024-01-02T03:04:05", "level": "warn"},
    ),
    (b"[2025-01-02 03:04:05 TP3] x", b"x", {"ts": "~2025-01-02T03:04:05", "rank": 3}),
    (
        b"[01/02/2025-03:04:05] [TRT-LLM] [RANK 3] [E] x",
        b"x",
        {"ts": "~2025-01-02T03:04:05", "level": "error", "rank": 3},
    ),
    (
        b'time="2024-01-02T03:04:05Z" level=error msg="boom"',
        b'msg="boom"',
        {"ts": "2024-01-02T03:04:05", "level": "error"},
    ),
    (b"wandb: ERROR Abnormal program exit", None, {"level": "error"}),
    (
        b"[node01:12345] *** Process received signal ***",
        b"*** Process received signal ***",
        {"host": "node01", "pid": 12345},
    ),
    # records that start behind a progress bar or another writer's text
    (
        b"  0%|          | 1/15000 [00:11<44:20:08, 10.21s/it][2023-06-08 02:10:11,410] [INFO] x",
        b"x",
        {"ts": "~2023-06-08T02:10:11.410000", "level": "info"},
    ),
    (b"it 3 [00:11, 2.1it/s, nan=1]ERROR: bus error", b"bus error", {"level": "error"}),
    (
        b"  0%|    | 0/500 [00:00<?, ?it/s]/mnt/a.swp: buffer",
        None,
        {},
    ),
    (b"[rank1]: [WARNING] a[rank3]: RuntimeError: b", b"RuntimeError: b", {"rank": 3}),
    (b"[rank1]: a [rank1]: b", b"a [rank1]: b", {"rank": 1}),
    (b"loss 2.1[default5]:x", b"x", {"local_rank": 5}),
    # times that cannot be
    (b"[0000-00-00 00:00:00] x", b"x", {}),
    (b"9999-12-31 23:59:59 x", b"x", {}),
    (b"1970-12-31 23:59:59 x", b"x", {}),
    (b"2101-01-01 00:00:00 x", b"x", {}),
    (b"2024-02-30 10:00:00 x", b"x", {}),
    (b"2024-02-03 25:00:00 x", b"x", {}),
    (b"2024-02-03 10:00:61 x", b"x", {}),
    (b"[9999999999.123456] x", b"x", {}),
    (b"E0230 10:00:00.123456 1 a.cc:1] x", b"x", {"level": "error", "pid": 1}),
    (b"[12:33:11] x", b"x", {}),
]


@pytest.mark.parametrize(("line", "message", "fields"), LINES)
def test_layout_is_stripped_and_read(
    line: bytes, message: bytes | None, fields: dict[str, Any]
) -> None:
    assert told(line) == (line if message is None else message, fields)
    assert stamped(line, clock()) == parse(line, clock()).ts


def test_header_of_a_plain_line_has_nothing_but_bounds() -> None:
    nothing = (None,) * 6
    assert parse(b"abc def", clock()) == Header(0, 7, None, None, "none", False, *nothing, False, 1)


def test_message_bounds_are_those_of_the_original_line() -> None:
    line = b"[rank3]: [ERROR] boom"
    assert parse(line, clock())[:3] == (17, 21, None)
    unescaped = b"\x1b[31m[rank3]: boom\x1b[0m"
    assert parse(unescaped, clock())[:3] == (0, len(unescaped), b"boom")


@pytest.mark.parametrize(("line", "message", "fields"), LINES)
def test_layers_stack(line: bytes, message: bytes | None, fields: dict[str, Any]) -> None:
    stacked = b"2024-05-05T06:07:08.123456789Z stderr F " + line
    text, inner = told(stacked)
    # what the line itself says stands; the runtime adds a time where there was none
    assert text == (line if message is None else message)
    assert {**inner, "ts": None} == {**fields, "ts": None}
    if not fields.get("ts", "dmesg").endswith("dmesg"):
        assert inner["ts"][:1] == fields["ts"][:1]
        assert inner["ts"][5:] == fields["ts"][5:]


def test_docker_json_around_other_layers() -> None:
    line = (
        b'{"log":"2024-01-02T03:04:05Z  7: [rank9]: [E602 11:15:44.120338104 F.cpp:6] \\u00e9\\n"}'
    )
    assert told(line) == (
        "é".encode(),
        {"ts": "~2024-06-02T11:15:44.120338", "level": "error", "rank": 9},
    )


def test_bytes_that_are_not_utf8_survive_docker_json() -> None:
    assert told(b'{"log":"caf\xe9 \\ud800\\n"}')[0] == b"caf? ?"
    assert told(b'{"log":"caf\xe9\\n"}')[0] == b"caf\xe9"


def test_outer_time_gives_date_to_a_time_of_day() -> None:
    assert told(b"2024-01-02T00:00:01.5Z 23:59:58.25 INFO x") == (
        b"x",
        {"ts": "~2024-01-01T23:59:58.250000", "level": "info"},
    )


def test_outer_time_gives_year_to_a_date() -> None:
    line = b"2019-01-01T00:00:01Z E1231 23:59:58.250000 7 a.cc:1] x"
    assert told(line, clock(near="2024-06-01"))[1]["ts"] == "~2018-12-31T23:59:58.250000"


def test_impossible_inner_time_leaves_the_outer_one() -> None:
    line = b"2024-01-02T03:04:05Z [2024-02-30 10:00:00,123] [INFO] x"
    assert told(line)[1]["ts"] == "2024-01-02T03:04:05"


@pytest.mark.parametrize(
    ("near", "mtime", "expected"),
    [
        ("2024-12-30", None, "2024-12-31T23:59:59"),
        ("2025-01-01", None, "2024-12-31T23:59:59"),
        ("2025-01-01", "2030-01-01", "2024-12-31T23:59:59"),
        (None, "2025-06-01T00:00", "2024-12-31T23:59:59"),
        (None, "2024-12-31T00:00", "2024-12-31T23:59:59"),
        (None, "2024-12-30T12:00", "2023-12-31T23:59:59"),
    ],
)
def test_year_comes_from_neighbours_else_from_mtime(
    near: str | None, mtime: str | None, expected: str
) -> None:
    assert stamped(b"Dec 31 23:59:59 n1 a[1]: x", clock(near, mtime)) == us(expected)


def test_time_without_year_and_without_neighbours_is_none() -> None:
    header = parse(b"E0602 11:15:44.123456 1 a.cc:1] x", clock(near=None))
    assert (header.ts, header.ts_source, header.tz_assumed) == (None, "none", False)


def test_29_february_goes_into_a_leap_year() -> None:
    assert stamped(b"Feb 29 10:00:00 n1 a[1]: x", clock("2023-05-01")) == us("2024-02-29T10:00")
    assert stamped(b"Feb 29 10:00:00 n1 a[1]: x", clock("2026-05-01")) is None


@pytest.mark.parametrize(
    ("near", "mtime", "expected"),
    [
        ("2024-01-15", None, "2024-01-11T10:00"),
        ("2024-10-30", None, "2024-11-01T10:00"),
        (None, "2024-12-01", "2024-01-11T10:00"),
    ],
)
def test_c10_month_without_leading_zero_is_settled_by_neighbours(
    near: str | None, mtime: str | None, expected: str
) -> None:
    line = b"[E111 10:00:00.000000000 F.cpp:1] x"
    assert stamped(line, clock(near, mtime)) == us(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-15 12:00:00", "2024-01-15T11:00:00"),
        ("2024-07-15 12:00:00", "2024-07-15T10:00:00"),
        ("2024-10-27 02:30:00", "2024-10-27T00:30:00"),  # twice that night: the first
        ("2024-03-31 02:30:00", "2024-03-31T01:30:00"),  # not at all: as before the change
        ("2024-07-15 12:00:00Z", "2024-07-15T12:00:00"),
        ("2024-07-15T12:00:00-0700", "2024-07-15T19:00:00"),
    ],
)
def test_naive_times_are_read_in_the_zone_of_the_clock(text: str, expected: str) -> None:
    header = parse(text.encode() + b" x", Clock(BERLIN))
    assert (header.ts, header.tz_assumed) == (us(expected), len(text) == 19)


def test_times_outside_of_the_calendar_do_not_break_the_clock() -> None:
    for extreme in (-(2**63), 2**63, 0, us("1971-01-01"), us("2100-12-31")):
        for when in (Clock(UTC_ZONE, extreme), Clock(UTC_ZONE, None, extreme)):
            for line, _, _ in LINES:
                parse(line, when)


def test_record_that_starts_last_before_the_match_is_told_about() -> None:
    line = b"[rank1]: one[rank3]: [ERROR] two"
    assert told(line, at=12) == (b"one[rank3]: [ERROR] two", {"rank": 1})
    assert told(line, at=32) == (b"two", {"rank": 3, "level": "error"})


def test_parsing_leaves_the_clock_alone() -> None:
    when = clock(near=None)
    parse(b"2024-01-02 03:04:05 x", when)
    assert when == clock(near=None)


def test_time_hint_finds_the_places_of_times_with_colons() -> None:
    without = (b"RAS KERNEL", b"kernel: x", b"unix.hw", b"081109", b'"ts":', b"UCX")
    for line, _, fields in LINES:
        if not fields.get("ts", "dmesg").endswith("dmesg") and not any(x in line for x in without):
            assert TIME_HINT.search(line), line


def test_rank_hint_matches_each_tagged_line_once() -> None:
    tagged = [
        b"[rank3]:[E602 11:15:44.120338104 F.cpp:6] [Rank 3] a",
        b"[default3]:a",
        b"n1:1:2 [0] NCCL INFO a [1] NCCL",
        b"n1:1:2 [-1] a/b.cc:7 NCCL WARN a",
        b"x [1,26]<stderr>:a",
        b"[2024-04-20 15:55:06] INFO [olmo.util:158, rank=6] a",
        b"2023-05-05 10:12:13,123: rank1[813][MainThread]: DEBUG: a",
    ]
    plain = [b"rank 3 of 8", b"a[3] = NCCL", b"[2024-04-20 15:55:06] [INFO] [a.py:1:f] x", b""]
    found = re.findall(RANK_TAG.encode() + rb"[^\n]*", b"\n".join(tagged + plain + tagged))
    assert len(found) == 2 * len(tagged)


PIECES = sorted({piece for line, _, _ in LINES for piece in line.partition(b" ")[::2]} - {b""})
NOISE = st.sampled_from(
    [b"[", b"]", b" ", b":", b'{"log":"', b'"}', b"\x1b[", b"\x00", b"\xff", b"9" * 40]
)


@settings(max_examples=400)
@given(st.binary(max_size=200), st.integers(-5, 205) | st.none())
def test_no_bytes_raise(line: bytes, at: int | None) -> None:
    header = parse(line, clock(), at)
    assert 0 <= header.body <= header.end <= len(line)


@settings(max_examples=600)
@given(
    st.lists(st.sampled_from(PIECES) | NOISE | st.binary(max_size=4), max_size=8).map(b"".join),
    st.sampled_from([clock(), clock(None), clock(None, "2024-06-01"), Clock(BERLIN)]),
    st.integers(0, 300),
)
def test_no_mixture_of_headers_raises(line: bytes, when: Clock, at: int) -> None:
    header = parse(line, when)
    assert 0 <= header.body <= header.end <= len(line)
    assert header == parse(line, when)
    assert stamped(line, when) == header.ts
    assert header.ts is None or us("1970-12-31") < header.ts < us("2101-01-02")
    for number in (header.rank, header.local_rank, header.pid):
        assert number is None or 0 <= number < 2**31
    assert header.repeats >= 1
    assert 0 <= parse(line, when, at).body <= len(line)


@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from([line for line, _, _ in LINES])
    | st.lists(st.sampled_from(PIECES) | NOISE, max_size=6).map(b"".join),
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.sampled_from([clock(), clock(None), clock(None, "2024-06-01"), Clock(BERLIN)]),
    st.floats(0, 1),
)
def test_layout_of_a_line_reads_all_that_differ_in_digits_alone(
    line: bytes, digits: list[int], when: Clock, place: float
) -> None:
    """It says the same as the parser or leaves it to that."""
    layouts, drawn = Layouts(), itertools.cycle(digits)
    layouts.of(line)
    layout = layouts.of(line)
    for other in (line, re.sub(rb"\d", lambda _: b"%d" % next(drawn), line)):
        at = round(place * len(other))
        if layout is not None and (header := layout.parse(other, when, at)) is not None:
            assert header == parse(other, when, at)
        assert layouts.stamped(bytearray(other), when, 0, len(other)) == stamped(other, when)


def test_layout_is_known_from_the_second_line_on() -> None:
    layouts = Layouts()
    first, second, third = (
        b"2024-06-21T14:0%d:05.123Z node%d trainer[%d]: [rank%d]: step %d" % (n, n, n, n, n)
        for n in (1, 2, 3)
    )
    assert layouts.of(first) is None
    layout = layouts.of(second)
    assert layout is not None
    assert layouts.of(third) is layout
    header = layout.parse(third, clock(), len(third))
    assert header == parse(third, clock())
    assert header is not None
    assert (header.rank, header.host, header.pid) == (3, "node3", 3)
    assert header.ts == us("2024-06-21 14:03:05.123")


def test_a_zone_behind_a_time_counts_for_the_time_alone_too() -> None:
    """The cheaper way read the clock's zone, an hour off."""
    line, when = b"2024-01-02 03:04:05 UTC node7 kernel: x", Clock(BERLIN)
    assert stamped(line, when) == parse(line, when).ts == us("2024-01-02 03:04:05")


def test_hostile_repetition_does_not_blow_up() -> None:
    units = [b"[rank1]:", b"a1", b"a.", b"[", b"9", b"[1<it/s", b"a:1", b" ON a", b"(a ", b"\x1b]"]
    for unit in units:
        for head in (b"", b"[2024-01-02 03:04:05] ", b"slurmd: ", b"(Actor pid=1) "):
            parse(head + unit * 10_000, clock())
    deep = b'{"log":' * 20_000 + b"1" + b"}" * 20_000
    assert told(deep) == (deep, {})


def _lines(path: Path) -> list[bytes]:
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    return [line.rstrip(b"\r") for line in data.removesuffix(b"\n").split(b"\n")]


@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not beside the repository")
def test_share_of_tagged_and_stamped_lines_of_real_training_logs() -> None:
    files = sorted((DATA / "bigscience").glob("*.out"))
    assert len(files) == 16
    lines = [line for file in files for line in _lines(file)]
    assert len(lines) == 50_948
    assert sum(re.search(RANK_TAG.encode(), line) is not None for line in lines) == 24_893  # 48.9 %
    when = clock("2021-05-27")
    times = [any(stamped(x, when) for x in line.split(b"\r")) for line in lines]
    assert round(sum(times) / len(lines), 3) == 0.045


@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not beside the repository")
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("loghub/BGL_2k.log", ("ts", "level", "host")),
        ("loghub/HDFS_2k.log", ("ts", "level", "pid")),
        ("loghub/HPC_2k.log", ("ts",)),
        ("loghub/Hadoop_2k.log", ("ts", "level")),
        ("loghub/Linux_2k.log", ("ts",)),
        ("loghub/OpenSSH_2k.log", ("ts", "host", "pid")),
        ("loghub/OpenStack_2k.log", ("ts", "level", "pid")),
        ("loghub/Spark_2k.log", ("ts", "level")),
        ("loghub/Thunderbird_2k.log", ("ts",)),
        ("loghub/Zookeeper_2k.log", ("ts", "level")),
        ("gpud/components_memory_testdata_dmesg.decode.iso.log", ("ts", "level", "stream")),
        ("gpud/pkg_kmsg_testdata_kmsg.1.log", ("level", "stream")),
        ("bgl_fail/Best.all-fail.xz", ("ts", "level", "host")),
    ],
)
def test_every_line_of_public_logs_is_read(name: str, fields: tuple[str, ...]) -> None:
    when = clock("2005-11-09")
    unread = [
        line
        for line in _lines(DATA / name)[:2000]
        if None in [getattr(parse(line, when), field) for field in fields]
    ]
    assert unread == []


def test_rank_of_thousands_of_digits_is_none() -> None:
    line = b"(Worker_TP%s pid=188) RuntimeError: x" % (b"9" * 5000)
    assert parse(line, Clock(UTC)).rank is None
