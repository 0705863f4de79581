from __future__ import annotations

import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matcher.mask import Level, Masker
from tests.planted import STYLES, Maker, corpus, in_context, styled, tokens
from tests.support import shared

masker = functools.cache(Masker)

NEAR_MISSES = r"""
training with max_tokens=512 and max_new_tokens: 1024, num_tokens: 4096
throughput tokens/s: 1234.5 | tokens per second per gpu: 99 | consumed tokens:    12345
pad_token=<pad> eos_token='</s>' bos_token="<s>" unk_token: <unk> sep_token=[SEP]
pad_token='[PAD]', mask_token="[MASK]", image_token=<image>, stop_token=im_end2x
"eos_token": "<|endoftext|>", "pad_token": "<|finetune_right_pad_id|>"
eos_token_id=2 pad_token_id: 0 token_type_ids=1 token_count=5
token: 50256
token=50256 next_token: 1234 token=0x7f3a10c4
time per token: 12.5ms, per_token_loss: 2.31 | lr: 1e-4
Logprob(logprob=-0.1, rank=1, decoded_token=' Hello2world')
ValueError: Unexpected token: abc123 in JSON at position 4
use_auth_token=True token=None hf_token: null
hub_token=<HUB_TOKEN>, push_to_hub_token=<PUSH_TO_HUB_TOKEN>
special tokens: ['<s>', '</s>']
Token indices sequence length is longer than the specified maximum sequence length (2049 > 1024)
use --token to pass a token; --token-type bearer; --tokenizer-type GPT2BPETokenizer
--tokenizer_name gpt2 --token_count 1234567 --token --verbose
token = kwargs.pop("token", None)
    token=token, api_key=self.api_key, password=password,
    api_key = os.environ["WANDB_API_KEY"]
    api_key: Optional[str] = None
    def login(token: str, password: str = ""):
    headers = {"Authorization": f"Bearer {token}"}
Token: Token { kind: ContainerToken, service: 10.0.0.1:8080 }
MPTCP token hash table entries: 4096 (order: 4)
the access token has expired; access token: expired
commit 3f2a9c1b7d8e4f5061728394a5b6c7d8e9f00112
HEAD is now at 3f2a9c1b7d8e4f5061728394a5b6c7d8e9f00112
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  checkpoint/model.safetensors
9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
Loaded X.509 cert 'kernel signing key: 510a3edd967c755b8ca465a2976ba94574eb909c'
[PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog caught collective operation timeout
GPU-8f3e2a10-4b5c-6d7e-8f90-a1b2c3d4e5f6 fell off the bus
ncclCommInitRank comm 0x7f8 rank 3 nranks 8 busId 3b000 commId 0x8d7c6b5a49382716 - Init START
wandb: Currently logged in as: robot (team). Use `wandb login --relogin` to force relogin
wandb: Appending key for api.wandb.ai to your netrc file: /root/.netrc
wandb: Paste an API key from your profile and hit enter, or press ctrl+c to quit:
wandb: ERROR API key must be 40 characters long, yours was 39
wandb.errors.AuthenticationError: API key verification failed. Make sure your API key is valid.
Failed password for invalid user admin from 10.0.0.1 port 22 ssh2
pam_unix(sshd:auth): authentication failure; logname= uid=0
Access denied for user 'root'@'localhost' (using password: YES)
password: required
wrong password: try again
sudo: a password is required
error: argument --password: expected one argument
password=$DB_PASSWORD token=${HF_TOKEN} api_key=$(cat key)
password=*** secret=<redacted> token=[REDACTED] api_key=****************
curl -H "Authorization: Bearer $TOKEN" https://host
Authorization: denied
PWD=/scratch/run1 OLDPWD=/home/x
forward pass=1 second_pass: 12 PASS: test_x
partition key: 5; cache_key=abcdef0123456789abcdef; sort key: a1
private_key=/root/.ssh/id_rsa --private-key ~/.ssh/id
credentials: /root/.aws/credentials
auth=SIMPLE (auth:SIMPLE) "auth": "none"
MountVolume.SetUp failed for volume "v" : secret "my-secret-2" not found
Failed to get secret: not found; imagePullSecret: regcred
sig=11 signal=15 signature=abc
task-0123456789abcdef0123456789 disk-abcdefghij0123456789abc
hf_transfer hf_hub_download hf_AutoModelForCausalLM npm_config_cache npm_lifecycle_event
saved /mnt/data/checkpoints/global_step1000/zero_pp_rank_0_mp_rank_00_optim_states.pt
docker run --user 1000:1000 -u 0:0 image; rsync -u a:b
getty@tty1.service user@1000.service systemd-fsck@dev-sda1.service
kex: curve25519-sha256@libssh.org chacha20-poly1305@openssh.com
Cloning git@github.com:org/repo.git; docker://$oauthtoken@nvcr.io/x
gcc@11.2.0 openmpi@4.1.4 nvcr.io/nvidia/pytorch@sha256:abcdef forward@model.py:12
10.0.0.1@o2ib:/fs 192.168.1.1@tcp tcp://10.0.0.1:29500 http://n1:8080/a@b.c
Connecting to driver: spark://CoarseGrainedScheduler@10.10.34.11:48069
""".strip().splitlines()

STRICT_NEAR_MISSES = r"""
2024-05-01 12:30:45.123456 step 1200 [0000:3b:00.0] mac aa:bb:cc:dd:ee:ff
terminate called: std::runtime_error c10::Error at::native::add
saved /mnt/data/checkpoints/global_step1000/zero_pp_rank_0_mp_rank_00_optim_states.pt
git checkout tr3m-1B3-emb-norm-pile-optim-reset.slurm
GPU-8f3e2a10-4b5c-6d7e-8f90-a1b2c3d4e5f6 torch 2.3.1 nccl 2.20.5 build 1.2.3.4.5
""".strip().splitlines()


@pytest.fixture(scope="module")
def mask() -> Masker:
    return masker("default")


def test_no_planted_secret_survives_in_any_style_of_header(mask: Masker) -> None:
    left = [
        (style, planted.name)
        for style, planted in styled()
        # Not even the end of it may stay.
        if planted.secret[-6:].encode() in mask.mask(planted.line.encode())[0]
    ]
    assert len(corpus()) >= 200
    assert left == []


def test_each_planted_secret_counts_once(mask: Masker) -> None:
    counts = {
        (style, planted.name): mask.mask(planted.line.encode())[1] for style, planted in styled()
    }
    assert {place: count for place, count in counts.items() if count != 1} == {}


def test_masking_twice_changes_nothing(mask: Masker) -> None:
    for level in (mask, masker("strict")):
        for _, planted in styled():
            once, _ = level.mask(planted.line.encode())
            assert level.mask(once) == (once, 0)


@pytest.mark.parametrize("line", NEAR_MISSES)
def test_a_near_miss_stays_the_same_object(mask: Masker, line: str) -> None:
    for style, wrap in STYLES.items():
        text = wrap(line).encode()
        masked, count = mask.mask(text)
        assert (masked, count, style) == (text, 0, style)
        assert masked is text


@pytest.mark.parametrize("line", STRICT_NEAR_MISSES)
def test_strict_leaves_times_names_and_paths(line: str) -> None:
    assert masker("strict").mask(line.encode()) == (line.encode(), 0)


def test_the_kind_and_the_key_stay(mask: Masker) -> None:
    known = tokens(Maker(3))
    hexa = "5" + "0123456789abcdef"[3:] * 3
    for line, expected in {
        f"login with {known['hf-token']}.": "login with <masked:hf-token>.",
        f"HF_TOKEN={known['hf-token']} python x": "HF_TOKEN=<masked:hf-token> python x",
        f"key {known['jwt']}, ok": "key <masked:jwt>, ok",
        f"WANDB_API_KEY={hexa}": "WANDB_API_KEY=<masked:wandb-key>",
        "db = postgres://u:pw1@h/db": "db = postgres://u:<masked:url-password>@h/db",
        '{"a": 1, "password": "b c", "d": 2}': '{"a": 1, "password": "<masked:password>", "d": 2}',
        "Authorization: Bearer abcdef0123456789": "Authorization: Bearer <masked:authorization>",
        "/x?token=abc123def456&step=5": "/x?token=<masked:token>&step=5",
        "run --password hunter2 --lr 1": "run --password <masked:password> --lr 1",
        "f(password=hunter2, lr=1)": "f(password=<masked:password>, lr=1)",
        "mail to jo.doe@example.org now": "mail to <masked:email> now",
    }.items():
        assert mask.mask(line.encode()) == (expected.encode(), 1)


def test_a_quote_inside_a_quoted_password_does_not_end_it(mask: Masker) -> None:
    value = {"password": 'a"b c\\"d', "port": 5}
    for text in (
        json.dumps(value),
        json.dumps(json.dumps(value)),
        repr({"log": json.dumps(value)}),
    ):
        masked, count = mask.mask(text.encode())
        assert count == 1
        assert b"port" in masked
        assert b" c" not in masked


def _key_lines(*, last: str = "Zm9vYmFyYmF6cXV4Zm9v") -> list[str]:
    make = Maker(5)
    dashes = "-" * 5
    body = [make.b64(48) for _ in range(6)]
    begin, end = (f"{dashes}{edge} RSA PRIVATE KEY{dashes}" for edge in ("BEGIN", "END"))
    return ["cat id_rsa", begin, *body, last, end, "step 7 loss 2.31 3f2a9c1b7d8e4f5061728394"]


@pytest.mark.parametrize("style", STYLES)
def test_a_private_key_goes_line_by_line_and_the_lines_stay_countable(
    mask: Masker, style: str
) -> None:
    lines = [STYLES[style](line) for line in _key_lines(last="Zm9vYmFyYmF6cXV4Zm9vYg==")]
    masked, count = mask.mask("\n".join(lines).encode())
    out = masked.decode().split("\n")
    assert count == 8
    assert len(out) == len(lines)
    assert (out[0], out[-2:]) == (lines[0], lines[-2:])
    for line in out[1:9]:
        assert line.count("<masked:private-key>") == 1
        assert "Zm9v" not in line


def test_full_lines_of_a_key_go_without_their_begin(mask: Masker) -> None:
    body = [line.encode() for line in _key_lines()[2:8]]
    assert mask.mask(b"\n".join(body)) == (b"\n".join([b"<masked:key-line>"] * 6), 6)


def test_mentioning_the_marker_of_a_key_spares_the_lines_below(mask: Masker) -> None:
    below = b"\n".join([b"loading shard", b"ok"] * 3 + [b"commit 3f2a9c1b7d8e4f5061728394"])
    marker = b"-" * 5 + b"BEGIN PRIVATE KEY" + b"-" * 5
    assert mask.mask(b"no " + marker + b"\n" + below) == (b"no <masked:private-key>\n" + below, 1)


def test_strict_masks_random_strings() -> None:
    line = b"/home/jo/run 3f2a9c1b7d8e4f5061728394a5b6c7d8"
    assert masker("strict").mask(line) == (b"/home/jo/run <masked:random>", 1)
    assert masker("default").mask(line) == (line, 0)


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(ValueError, match="mask level 'none' is not known: use default or strict"):
        Masker("none")  # type: ignore[arg-type]


def test_a_long_line_of_one_secret_goes_whole(mask: Masker) -> None:
    assert mask.mask(b"x password=" + b"a,b" * 300_000) == (b"x password=<masked:password>", 1)
    assert mask.mask(b'x secret="' + b"a b\\n" * 200_000) == (b'x secret="<masked:secret>', 1)


# Whatever ends one rule and begins another, glued at random: the worst that a line can hold.
_SHARDS = st.sampled_from(
    [
        b"password=", b"token: ", b"--token ", b"secret='", b'api_key="', b"'PASSWORD=", b"://a:b@",
        b"a@b.cd", b"h" b"f_", b"s" b"k-", b"ey" b"J", b"A" * 20, b"Aa1+" * 16, b"0f" * 20, b".",
        b"-" * 5 + b"BEGIN PRIVATE KEY" + b"-" * 5, b"<masked:token>", b"<", b">", b"$", b"\\n",
        b'\\"', b"\\\\\\'", b"'", b'"', b"\n", b"\r", b" ", b",", b"=", b"\x1b[1m", b"bearer ",
        b"authorization: digest ", b"authorization='digest ", b"'token=",
        b"sig=", b"%3D", b"\x00", b"\xff", b"wandb login ", b"docker login -p ",
        b"::1", b"1.1.1.1", b"/home/x",
    ]
)  # fmt: skip
_LEVELS: tuple[Level, ...] = ("default", "strict")
_SOUP = st.lists(_SHARDS | st.binary(max_size=12), max_size=40).map(b"".join)


@settings(deadline=None)
@given(st.sampled_from(_LEVELS), _SOUP)
def test_any_bytes_are_masked_once_and_for_all(level: Level, text: bytes) -> None:
    mask = masker(level)
    masked, count = mask.mask(text)
    assert mask.mask(masked) == (masked, 0)
    assert (masked is text) == (count == 0)
    assert masked.count(b"\n") == text.count(b"\n")


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32))
def test_no_secret_of_any_seed_survives(seed: int) -> None:
    mask = masker("default")
    for planted in in_context(Maker(seed)):
        assert planted.secret.encode() not in mask.mask(planted.line.encode())[0], planted


def test_real_logs_hold_e_mail_addresses_and_no_other_secret(mask: Masker) -> None:
    data = shared("data")
    kinds = set()
    for path in [*data.glob("loghub/*.log"), *data.glob("bigscience/*"), *data.glob("m4/*")]:
        if path.is_file():
            for line in mask.mask(path.read_bytes())[0].split(b"\n"):
                kinds |= {part.split(b">")[0] for part in line.split(b"<masked:")[1:]}
    assert kinds == {b"email"}
