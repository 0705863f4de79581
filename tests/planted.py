"""Fake secrets for tests, put together at run time so that no scanner finds one in the sources."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

_ALNUM = string.ascii_letters + string.digits
_URL64 = _ALNUM + "-_"
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + "234567"


class Planted(NamedTuple):
    """A line with one secret in it and what must not be left of it."""

    name: str
    secret: str
    line: str


class Maker:
    """Random strings of the usual alphabets, the same for one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, alphabet: str, length: int) -> str:
        """A string of `length` that ends in a letter, where there are any, and a digit."""
        letters = [char for char in alphabet if char.isalpha()] or ["7"]
        start = "".join(self._random.choices(alphabet, k=length - 2))
        return start + self._random.choice(letters) + self._random.choice("234567")

    def b64(self, size: int) -> str:
        return base64.b64encode(self._random.randbytes(size)).decode()

    def password(self) -> str:
        return self._random.choice(
            [
                "hunter2",
                "s3cr3t",
                "Sw0rdfish!",
                "p@ss,w0rd",
                "tr0ub4dor&3",
                "x:y/z#9",
                "correcthorse",
            ]
        )


def tokens(make: Maker) -> dict[str, str]:
    """Secrets that are known by their own form, one a kind."""
    of = make.of
    return {
        "hf-token": "h" + "f_" + of(string.ascii_letters + "0123", 34),
        "wandb-key-v1": "wandb" + "_v1_" + of(_ALNUM + "_", 77),
        "openai-key": "s" + "k-" + of(_ALNUM, 48),
        "openai-project-key": "s" + "k-proj-" + of(_URL64, 120),
        "openai-service-key": "s" + "k-svcacct-" + of(_URL64, 60),
        "anthropic-key": "s" + "k-ant-api03-" + of(_URL64, 95),
        "github-classic": "gh" + "p_" + of(_ALNUM, 36),
        "github-oauth": "gh" + "o_" + of(_ALNUM, 36),
        "github-user": "gh" + "u_" + of(_ALNUM, 36),
        "github-server": "gh" + "s_" + of(_ALNUM, 36),
        "github-refresh": "gh" + "r_" + of(_ALNUM, 76),
        "github-fine": "github" + "_pat_" + of(_ALNUM, 22) + "_" + of(_ALNUM, 59),
        "gitlab": "gl" + "pat-" + of(_URL64, 20),
        "gitlab-deploy": "gl" + "dt-" + of(_URL64, 20),
        "aws-key-id": "AK" + "IA" + of(_UPPER, 16),
        "aws-session-id": "AS" + "IA" + of(_UPPER, 16),
        "gcp-key": "AI" + "za" + of(_URL64, 35),
        "gcp-access": "ya" + "29.a0" + of(_URL64, 60),
        "gcp-client": "GOC" + "SPX-" + of(_URL64, 28),
        "slack-bot": "xo" + "xb-" + of(string.digits, 12) + "-" + of(_ALNUM, 24),
        "slack-user": "xo" + "xp-" + of(string.digits, 12) + "-" + of(_ALNUM, 32),
        "slack-app": "xo" + "xa-2-" + of(_ALNUM, 32),
        "slack-refresh": "xo" + "xr-" + of(_ALNUM, 40),
        "slack-session": "xo" + "xs-" + of(_ALNUM, 40),
        "jwt": ".".join(
            [
                "ey" + "J" + of(_URL64, 33),
                "ey" + "J" + of(_URL64, 90),
                of(_URL64, 43),
            ]
        ),
        "npm": "np" + "m_" + of(_ALNUM, 36),
        "pypi": "py" + "pi-Ag" + of(_URL64, 150),
        "docker-hub": "dckr" + "_pat_" + of(_URL64, 27),
        "nvidia": "nv" + "api-" + of(_URL64, 64),
        "databricks": "da" + "pi" + of(_HEX, 32),
        "groq": "gs" + "k_" + of(_ALNUM, 52),
        "vault": "hv" + "s." + of(_URL64, 90),
        "email": of(string.ascii_lowercase, 8) + "@" + "mail.example.org",
    }


def in_context(make: Maker) -> list[Planted]:
    """Secrets that only the text around them tells, in the forms that programs print."""
    of, password = make.of, make.password
    hex40, key40, long64 = of(_HEX, 40), of(_ALNUM + "+/", 40), of(_ALNUM + "+/", 86) + "=="
    plain = of(_ALNUM, 24)
    word = password()
    basic = base64.b64encode(b"robot:" + of(_ALNUM, 9).encode()).decode()
    pem = make.b64(48)
    dashes = "-" * 5
    begin, end = (f"{dashes}{edge} RSA PRIVATE KEY{dashes}" for edge in ("BEGIN", "END"))
    rows: list[tuple[str, str, str]] = [
        ("wandb-env", hex40, "export WANDB_API_KEY={}"),
        ("wandb-login", hex40, "$ wandb login --relogin --host=https://api.wandb.ai {}"),
        ("wandb-call", hex40, "wandb.login(key='{}', relogin=True)"),
        ("wandb-kwarg", hex40, "wandb settings api_key: {}"),
        ("wandb-args", hex40, "  wandb_api_key ................................... {}"),
        ("netrc", hex40, "machine api.wandb.ai login user password {}"),
        ("netrc-line", hex40, "  password {}"),
        ("aws-secret-ini", key40, "aws_secret_access_key = {}"),
        ("aws-secret-env", key40, "AWS_SECRET_ACCESS_KEY={}"),
        ("aws-secret-json", key40, '"SecretAccessKey": "{}",'),
        ("aws-session", long64, "AWS_SESSION_TOKEN={}"),
        ("aws-session-json", long64, '"SessionToken" : "{}"'),
        ("aws-presigned", of(_HEX, 64), "GET https://b.s3.amazonaws.com/k?X-Amz-Signature={}&x=1"),
        ("azure-account", long64, "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};E=1"),
        (
            "azure-sas",
            of(_ALNUM, 40) + "%3D",
            "https://a.blob.core.windows.net/c?sv=2022&sig={}&se=9",
        ),
        (
            "slack-webhook",
            f"T0{of(_UPPER, 8)}/B0{of(_UPPER, 8)}/{of(_ALNUM, 24)}",
            "POST https://hooks.slack" + ".com/services/{} 200",
        ),
        ("service-account", pem, f'"private_key": "{begin}\\n{{}}\\n{end}\\n",'),
        ("pem-inline", pem, f"key={begin} {{}} {end}"),
        ("pem-line", make.b64(48), "{}"),
        ("bearer-header", plain, "> Authorization: Bearer {}"),
        ("bearer-dict", plain, "headers={{'Authorization': 'Bearer {}', 'Accept': '*/*'}}"),
        ("bearer-curl", plain, "+ curl -s -H 'Authorization: Bearer {}' https://host/v1"),
        ("bearer-bare", plain, "sent bearer {} to the proxy"),
        ("basic-header", basic, "authorization: Basic {}"),
        ("token-header", plain, "Authorization: token {}"),
        ("api-key-header", plain, "x-api-key: {}"),
        ("docker-auth", basic, '{{"auths": {{"nvcr.io": {{"auth": "{}"}}}}}}'),
        ("npmrc", plain, "//registry.example.org/:_authToken={}"),
        ("url", of(_ALNUM, 10), "cloning https://robot:{}@git.example.org/a/b.git"),
        ("url-at", "p@" + of(_ALNUM, 6), "postgresql+psycopg2://mlflow:{}@db:5432/mlflow"),
        ("url-no-user", of(_ALNUM, 10), "redis://:{}@10.0.0.7:6379/0"),
        ("url-user", of(_ALNUM, 32), "dsn https://{}@sentry.example.org/4"),
        ("flag-blank", word, "python train.py --db-password {} --lr 1e-4"),
        ("flag-equals", word, "python train.py --password={} --lr 1e-4"),
        ("flag-quoted", "two words 9", "python train.py --password '{}' --lr 1e-4"),
        ("flag-token", plain, "launch --hub_token {} --steps 10"),
        ("argv", plain, "cmd = ['python', 'train.py', '--api-key', '{}', '--lr', '1e-4']"),
        ("argv-equals", plain, "cmd = ['python', 'train.py', '--api-key={}', '--lr=1e-4']"),
        ("sshpass", of(_ALNUM, 8), "+ sshpass -p {} ssh node1 hostname"),
        ("docker-login", of(_ALNUM, 12), "docker login -u robot -p {} nvcr.io"),
        ("curl-user", of(_ALNUM, 12), "curl -u robot:{} https://host/x"),
        ("env", word, "DB_PASSWORD={}"),
        ("env-upper-token", of(_ALNUM, 9), "JUPYTER_TOKEN={}"),
        ("set-x", word, "+ export PGPASSWORD={}"),
        ("set-x-quoted", "two words 9", "+ export 'MLFLOW_TRACKING_PASSWORD={}'"),
        ("declare", word, 'declare -x SMTP_PASS="{}"'),
        ("setenv", plain, "setenv HF_TOKEN {}"),
        ("passwd", word, "passwd={}"),
        ("secret", of(_ALNUM, 8), "secret={}"),
        ("token", of(_ALNUM, 12), "token={}"),
        ("token-spaced", of(_ALNUM, 12), "token = {}"),
        ("query", of(_HEX, 48), "http://n1:8888/lab?token={}&reset=1"),
        ("query-escaped", of(_HEX, 48), "http://n1:8888/?next=%2Flab&token%3D{}"),
        ("json", word, '{{"user": "a", "password": "{}", "port": 5}}'),
        ("json-blanks", "two words 9", '{{"user": "a", "password": "{}"}}'),
        ("json-escaped", plain, '{{"args": "{{\\"api_key\\": \\"{}\\"}}"}}'),
        ("dict", word, "{{'user': 'a', 'password': '{}', 'port': 5}}"),
        ("namespace", plain, "Namespace(lr=0.1, api_key='{}', seed=1)"),
        ("yaml", of(_ALNUM, 9), "password: {}"),
        ("yaml-word", "correcthorse", "  password: {}"),
        ("yaml-quoted", "two words 9", 'api_key: "{}"'),
        ("yaml-secret", of(_ALNUM, 20), "client_secret: {}"),
        ("yaml-token", of(_ALNUM, 20), "hf_token: {}  # hub"),
        ("odbc", of(_ALNUM, 9), "Driver=x;Uid=a;Pwd={};Encrypt=yes"),
        ("xml", of(_ALNUM, 9), "<password>{}</password>"),
        ("pod-env", plain, '{{"name": "HF_TOKEN", "value": "{}"}}'),
        ("pod-struct", plain, "EnvVar{{Name:HF_TOKEN,Value:{},ValueFrom:nil,}}"),
        ("ansi", plain, "\x1b[33mapi_key\x1b[0m: \x1b[1m{}\x1b[0m"),
        ("ansi-equals", plain, "token\x1b[0m=\x1b[32m{}\x1b[0m"),
        ("cookie", "session=" + plain, "Cookie: {}"),
    ]
    return [Planted(name, secret, form.format(secret)) for name, secret, form in rows]


_TOKEN_LINES = (
    "{}",
    "loaded {} from the environment",
    "401 Client Error for url: https://host/api?key={}&page=2",
    "\x1b[36m{}\x1b[0m rejected",
)


def corpus(seed: int = 7) -> list[Planted]:
    """More than 200 lines with one secret each."""
    make = Maker(seed)
    planted = [
        Planted(f"{name}-{number}", secret, line.format(secret))
        for number, line in enumerate(_TOKEN_LINES)
        for name, secret in tokens(make).items()
    ]
    return [*planted, *in_context(make), *in_context(make)]


def _docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2024-05-01T12:00:00Z"})


STYLES: dict[str, Callable[[str], str]] = {
    "plain": lambda line: line,
    "rank": lambda line: f"[rank3]: {line}",
    "torchelastic": lambda line: f"[default7]:{line}",
    "srun": lambda line: f" 12: {line}",
    "logging": lambda line: f"2024-05-01 12:00:00,123 - trainer - INFO - {line}",
    "syslog": lambda line: f"May  1 12:00:00 gpu-node-07 train[4711]: {line}",
    "cri": lambda line: f"2024-05-01T12:00:00.123456789Z stdout F {line}",
    "docker": _docker,
    "docker-twice": lambda line: _docker(_docker(line)),
    "repr": lambda line: f"event = { ({'msg': line, 'rank': 3})!r}",
    "yaml": lambda line: f"  - message: {line}",
    "carriage-return": lambda line: f"10%|#  |\r{line}\r",
}


def styled(seed: int = 7) -> Iterator[tuple[str, Planted]]:
    """(style, planted) for every line of the corpus in every style of header."""
    for style, wrap in STYLES.items():
        for planted in corpus(seed):
            yield style, planted._replace(line=wrap(planted.line))
